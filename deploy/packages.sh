# shellcheck shell=sh
# Finds or installs the system packages that `up` and `check` need. Sourced by them, not executed.
# All messages go to stderr.

log() {
    echo "switchboard: $*" >&2
}

fail() {
    log "$*"
    exit 69
}

# Runs a command as root: directly, or with sudo.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        fail "root is required, and sudo is not installed; run this as root: $*"
    fi
}

# install WHAT APT DNF APK PACMAN ZYPPER BREW: the packages of each system, separated by spaces.
install() {
    what=$1
    if command -v apt-get >/dev/null 2>&1; then
        set -- "$2" apt-get install --yes --no-install-recommends
        log "installing $what with apt-get: $1"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update >&2 || log "apt-get update failed; continuing with the present package lists"
    elif command -v dnf >/dev/null 2>&1; then
        set -- "$3" dnf install --assumeyes
    elif command -v apk >/dev/null 2>&1; then
        set -- "$4" apk add
    elif command -v pacman >/dev/null 2>&1; then
        set -- "$5" pacman --sync --noconfirm --needed
    elif command -v zypper >/dev/null 2>&1; then
        set -- "$6" zypper --non-interactive install
    elif command -v brew >/dev/null 2>&1; then
        log "installing $what with brew: $7"
        # shellcheck disable=SC2086 # a list of packages
        brew install $7 >&2
        return
    else
        fail "$what is missing, and no supported package manager was found; install it manually"
    fi
    packages=$1
    shift
    log "installing $what: $* $packages"
    # shellcheck disable=SC2086 # a list of packages
    as_root env DEBIAN_FRONTEND=noninteractive "$@" $packages >&2 || fail "could not install $what"
}

# Prints the newest folder with PostgreSQL's server programs.
postgres_folder() {
    for program in \
        "$(command -v postgres || true)" \
        /usr/lib/postgresql/*/bin/postgres \
        /usr/pgsql-*/bin/postgres \
        /usr/libexec/postgresql*/postgres \
        /opt/homebrew/opt/postgresql@*/bin/postgres \
        /usr/local/opt/postgresql@*/bin/postgres \
        /home/linuxbrew/.linuxbrew/opt/postgresql@*/bin/postgres \
        /Library/PostgreSQL/*/bin/postgres; do
        if [ -x "$program" ] && [ -x "$(dirname "$program")/initdb" ]; then
            dirname "$program"
        fi
    done | tail -n 1
}

# Prints the major version of the server programs in a folder.
postgres_major() {
    "$1/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/'
}

# The oldest version that is supported, as in crates/store/src/database/server_version.rs.
OLDEST_POSTGRES=15

need_postgres() {
    [ -n "$(postgres_folder)" ] || install_postgres
    major=$(postgres_major "$(postgres_folder)")
    [ "$major" -ge "$OLDEST_POSTGRES" ] ||
        fail "PostgreSQL $major is installed, and $OLDEST_POSTGRES or newer is required: https://www.postgresql.org/download/ has packages of newer versions"
}

install_postgres() {
    # By default, Debian's package also creates and starts a server.
    if command -v apt-get >/dev/null 2>&1 && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
        log "writing /etc/postgresql-common/createcluster.conf, so that the package starts no server"
        as_root mkdir -p /etc/postgresql-common
        echo 'create_main_cluster = false' | as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
    fi
    install "a PostgreSQL server" postgresql postgresql-server postgresql postgresql postgresql-server postgresql@17
    [ -n "$(postgres_folder)" ] || fail "PostgreSQL was installed, but its server program was not found"
}

# The vector type for searches by meaning. Some systems have no package for their version of
# PostgreSQL; the tests of these searches are then skipped with a message.
need_pgvector() {
    major=$(postgres_major "$(postgres_folder)")
    for folder in "$("$(postgres_folder)/pg_config" --sharedir 2>/dev/null || true)" "/usr/share/postgresql/$major" /usr/share/postgresql; do
        if [ -e "$folder/extension/vector.control" ]; then return 0; fi
    done
    if (install pgvector "postgresql-$major-pgvector" pgvector postgresql-pgvector pgvector "postgresql$major-pgvector" pgvector); then return 0; fi
    log "NOT TESTED: searches by meaning. This system has no pgvector package for PostgreSQL $major; install pgvector manually to test them"
    SWITCHBOARD_TESTS_WITHOUT_PGVECTOR=1
    export SWITCHBOARD_TESTS_WITHOUT_PGVECTOR
}

need_redis() {
    command -v redis-server >/dev/null 2>&1 || command -v valkey-server >/dev/null 2>&1 && return 0
    install "a Redis server" redis-server redis redis valkey redis redis
}

# The load balancer between devices and edges in tests.
need_haproxy() {
    command -v haproxy >/dev/null 2>&1 && return 0
    install "HAProxy" haproxy haproxy haproxy haproxy haproxy haproxy
    command -v haproxy >/dev/null 2>&1 || fail "HAProxy was installed, but \`haproxy\` was not found"
}

# Speaks where no other synthesis is configured; tests listen to it.
need_espeak() {
    command -v espeak-ng >/dev/null 2>&1 && return 0
    install "eSpeak NG" espeak-ng espeak-ng espeak-ng espeak-ng espeak-ng espeak-ng
    command -v espeak-ng >/dev/null 2>&1 || fail "eSpeak NG was installed, but \`espeak-ng\` was not found"
}

# libopus from outside, for tests of the codec.
need_opus_tools() {
    command -v opusenc >/dev/null 2>&1 && return 0
    install "opus-tools" opus-tools opus-tools opus-tools opus-tools opus-tools opus-tools
    command -v opusenc >/dev/null 2>&1 || fail "opus-tools was installed, but \`opusenc\` was not found"
}

# Recordings of people, with transcripts. Only Debian and its relatives package them.
need_speech() {
    [ -e "${SWITCHBOARD_SPEECH_SAMPLES:-/usr/share/pocketsphinx/test/data}/goforward.raw" ] && return 0
    command -v apt-get >/dev/null 2>&1 ||
        fail "the test data of pocketsphinx are missing: unpack Debian's pocketsphinx-testdata, and set SWITCHBOARD_SPEECH_SAMPLES to its folder"
    install "recordings of speech" pocketsphinx-testdata
}

# Checks and tests alerts. Debian packages it with the server.
need_promtool() {
    command -v promtool >/dev/null 2>&1 && return 0
    install "Prometheus and promtool" prometheus golang-github-prometheus prometheus prometheus golang-github-prometheus-prometheus prometheus
    command -v promtool >/dev/null 2>&1 || fail "Prometheus was installed, but \`promtool\` was not found"
}

# Checks the compose file, which needs no engine. On Alpine it is a plugin of `docker`.
need_docker_compose() {
    command -v docker-compose >/dev/null 2>&1 && return 0
    docker compose version >/dev/null 2>&1 && return 0
    install "Docker Compose" docker-compose docker-compose "docker-cli docker-cli-compose" docker-compose docker-compose docker-compose
    command -v docker-compose >/dev/null 2>&1 || docker compose version >/dev/null 2>&1 || fail "Docker Compose was installed, but neither \`docker-compose\` nor \`docker compose\` was found"
}

# The schema compiler, which tests compare with our FlatBuffers encoding.
need_flatc() {
    command -v flatc >/dev/null 2>&1 && return 0
    install "the FlatBuffers compiler" flatbuffers-compiler flatbuffers-compiler flatc flatbuffers flatbuffers-devel flatbuffers
    command -v flatc >/dev/null 2>&1 || fail "the FlatBuffers compiler was installed, but \`flatc\` was not found"
}

# npm installs the TypeScript clients of the tests, and the Node.js version that runs them.
need_node() {
    command -v npm >/dev/null 2>&1 && command -v node >/dev/null 2>&1 && return 0
    install "Node.js with npm" "nodejs npm" "nodejs nodejs-npm" "nodejs npm" "nodejs npm" "nodejs-default npm-default" node
    command -v npm >/dev/null 2>&1 || fail "npm was installed, but \`npm\` was not found"
}

# Runs the journeys through the console. Ubuntu's package of this name only leads to a snap.
need_chromium() {
    for browser in chromium chromium-browser google-chrome; do
        command -v "$browser" >/dev/null 2>&1 && return 0
    done
    install "Chromium" "chromium fonts-noto-cjk" chromium "chromium font-noto-cjk" "chromium noto-fonts-cjk" chromium chromium
    command -v chromium >/dev/null 2>&1 || fail "Chromium was installed, but \`chromium\` was not found"
}

# Whether Python can create virtual environments with pip. Debian has separate packages for that.
python_is_enough() {
    python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Runs the Python clients of the tests.
need_python() {
    python_is_enough && return 0
    install "Python with venv" "python3 python3-venv" "python3 python3-pip" "python3 py3-pip" python "python313 python313-pip" python@3.13
    python_is_enough || fail "the Python clients of the tests need \`python3\` 3.11 or newer, with venv and ensurepip"
}

# Crates with C code (the allocator, the cryptography) need a compiler and make.
need_compiler() {
    command -v cc >/dev/null 2>&1 && command -v make >/dev/null 2>&1 && return 0
    install "a C compiler" "gcc libc6-dev make" "gcc make" "gcc musl-dev make" "gcc make" "gcc make" "make"
}

need_rust() {
    if command -v cargo >/dev/null 2>&1; then return 0; fi
    if [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
        PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
        export PATH
        return 0
    fi
    fail "Rust is missing; install it from https://rustup.rs and run this command again"
}

# need_cargo_tool NAME: a program that cargo installs and runs as a subcommand.
need_cargo_tool() {
    command -v "$1" >/dev/null 2>&1 && return 0
    [ ! -x "${CARGO_HOME:-$HOME/.cargo}/bin/$1" ] || return 0
    log "installing $1 with cargo; this takes some minutes"
    cargo install --locked --quiet "$1" >&2 || fail "$1 could not be installed"
}
