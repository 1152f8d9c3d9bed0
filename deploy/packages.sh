# shellcheck shell=sh
# What `up` and `check` need from the system: found, or installed with the system's package manager.
# Sourced, never run. Everything it says goes to stderr.

say() {
    echo "switchboard: $*" >&2
}

fail() {
    say "$*"
    exit 69
}

# Runs a command as root: as it is when we are root, with sudo when there is one.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        fail "this needs root, and there is no sudo: run as root: $*"
    fi
}

# install WHAT APT DNF APK PACMAN ZYPPER BREW: the packages of each system, separated by spaces.
install() {
    what=$1
    if command -v apt-get >/dev/null 2>&1; then
        set -- "$2" apt-get install --yes --no-install-recommends
        say "installing $what with apt-get: $1"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update >&2 || say "the package lists are as old as they are"
    elif command -v dnf >/dev/null 2>&1; then
        set -- "$3" dnf install --assumeyes
    elif command -v apk >/dev/null 2>&1; then
        set -- "$4" apk add
    elif command -v pacman >/dev/null 2>&1; then
        set -- "$5" pacman --sync --noconfirm --needed
    elif command -v zypper >/dev/null 2>&1; then
        set -- "$6" zypper --non-interactive install
    elif command -v brew >/dev/null 2>&1; then
        say "installing $what with brew: $7"
        # shellcheck disable=SC2086 # a list of packages
        brew install $7 >&2
        return
    else
        fail "$what is missing, and no package manager known to this script is here: install it by hand"
    fi
    packages=$1
    shift
    say "installing $what: $* $packages"
    # shellcheck disable=SC2086 # a list of packages
    as_root env DEBIAN_FRONTEND=noninteractive "$@" $packages >&2 || fail "$what could not be installed"
}

# Prints the newest folder with PostgreSQL's server programs, where packages put them.
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

need_postgres() {
    [ -z "$(postgres_folder)" ] || return 0
    # Debian's package would also make and start a server of its own, which nobody asked for.
    if command -v apt-get >/dev/null 2>&1 && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
        say "writing /etc/postgresql-common/createcluster.conf: no server of the system's own"
        as_root mkdir -p /etc/postgresql-common
        echo 'create_main_cluster = false' | as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
    fi
    install "a PostgreSQL server" postgresql postgresql-server postgresql postgresql postgresql-server postgresql@17
    [ -n "$(postgres_folder)" ] || fail "PostgreSQL was installed, and its server program is not found"
}

# Where searches by meaning keep their numbers. Not every system has a package for its version of PostgreSQL; the tests
# of these searches are then left out, and that is said.
need_pgvector() {
    major=$("$(postgres_folder)/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
    for folder in "$("$(postgres_folder)/pg_config" --sharedir 2>/dev/null || true)" "/usr/share/postgresql/$major" /usr/share/postgresql; do
        if [ -e "$folder/extension/vector.control" ]; then return 0; fi
    done
    if (install pgvector "postgresql-$major-pgvector" pgvector postgresql-pgvector pgvector "postgresql$major-pgvector" pgvector); then return 0; fi
    say "NOT TESTED: searches by meaning. There is no package of pgvector for PostgreSQL $major here; install it by hand to have them tested"
    SWITCHBOARD_TESTS_WITHOUT_PGVECTOR=1
    export SWITCHBOARD_TESTS_WITHOUT_PGVECTOR
}

need_redis() {
    command -v redis-server >/dev/null 2>&1 || command -v valkey-server >/dev/null 2>&1 && return 0
    install "a Redis server" redis-server redis redis valkey redis redis
}

# A balancer: tests put it between devices and edges.
need_haproxy() {
    command -v haproxy >/dev/null 2>&1 && return 0
    install "a balancer" haproxy haproxy haproxy haproxy haproxy haproxy
    command -v haproxy >/dev/null 2>&1 || fail "haproxy was installed, and it is not found"
}

# Alerts are checked and tested with it; Debian has it beside the server.
need_promtool() {
    command -v promtool >/dev/null 2>&1 && return 0
    install "Prometheus and promtool" prometheus golang-github-prometheus prometheus prometheus golang-github-prometheus-prometheus prometheus
    command -v promtool >/dev/null 2>&1 || fail "Prometheus was installed, and \`promtool\` is not found"
}

# The compose file is read by the program that will; no engine is needed for that. Alpine has it as a part of `docker`.
need_docker_compose() {
    command -v docker-compose >/dev/null 2>&1 && return 0
    docker compose version >/dev/null 2>&1 && return 0
    install "Docker Compose" docker-compose docker-compose "docker-cli docker-cli-compose" docker-compose docker-compose docker-compose
    command -v docker-compose >/dev/null 2>&1 || docker compose version >/dev/null 2>&1 || fail "Docker Compose was installed, and it is not found"
}

# The schema compiler: tests of the FlatBuffers encoding ask it what it makes of our buffers.
need_flatc() {
    command -v flatc >/dev/null 2>&1 && return 0
    install "the FlatBuffers compiler" flatbuffers-compiler flatbuffers-compiler flatc flatbuffers flatbuffers-devel flatbuffers
    command -v flatc >/dev/null 2>&1 || fail "the FlatBuffers compiler was installed, and \`flatc\` is not found"
}

# Clients in TypeScript, which the tests point at our endpoints: npm brings the Node that they run on.
need_node() {
    command -v npm >/dev/null 2>&1 && command -v node >/dev/null 2>&1 && return 0
    install "Node.js with npm" "nodejs npm" "nodejs nodejs-npm" "nodejs npm" "nodejs npm" "nodejs-default npm-default" node
    command -v npm >/dev/null 2>&1 || fail "npm was installed, and it is not found"
}

# Whether this Python can make environments with pip in them: Debian packages that apart.
python_is_enough() {
    python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Clients in Python likewise.
need_python() {
    python_is_enough && return 0
    install "Python with venv" "python3 python3-venv" "python3 python3-pip" "python3 py3-pip" python "python313 python313-pip" python@3.13
    python_is_enough || fail "the MCP clients of the tests need Python 3.11 or newer as \`python3\`, with venv and ensurepip"
}

# Crates with C in them (the allocator, the cryptography) need a compiler and make.
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
    fail "Rust is missing: install it from https://rustup.rs and run this again"
}
