//! Examples of the commands that are not in the table of the API.

/// Command and what follows `switchboard` in its examples.
const EXAMPLES: [(&str, &[&str]); 32] = [
    (
        "up",
        &[
            "up",
            "up --data-dir ./data --device-listen 0.0.0.0:7700",
            "up --json",
        ],
    ),
    (
        "device",
        &[
            "device",
            "device --id toy-1 --services services.json",
            "device --id toy-1 --say 'what time is it?'",
        ],
    ),
    (
        "call",
        &[
            "call toy-1 echo '{\"text\":\"hi\"}'",
            "call toy-1 get_current_time --timeout-ms 2000",
            "call toy-1 echo '{\"text\":\"hi\"}' --queued --expires-in-ms 60000",
        ],
    ),
    (
        "devices label",
        &[
            "devices label toy-1 room:kitchen",
            "devices label toy-1 +stage:live -stage:test",
            "devices label --note 'needs a new battery' toy-1",
        ],
    ),
    (
        "events",
        &[
            "events",
            "events --types device.online,device.offline",
            "events --device toy-1 -o jsonl",
        ],
    ),
    (
        "calls show",
        &[
            "calls show call_01a1fdc1e83670f68020c071fd533605",
            "calls show call_01a1fdc1e83670f68020c071fd533605 --wait",
        ],
    ),
    (
        "calls wait",
        &[
            "calls wait call_01a1fdc1e83670f68020c071fd533605",
            "calls wait call_01a1fdc1e83670f68020c071fd533605 --context production",
        ],
    ),
    (
        "calls group",
        &[
            "calls group --label room:kitchen echo '{\"text\":\"hi\"}'",
            "calls group --device-id toy-1,toy-2 get_current_time --at-once 1",
        ],
    ),
    (
        "talk",
        &["talk", "talk --say 'what time is it?'", "talk --voice"],
    ),
    (
        "status",
        &["status", "status -o table", "status --context production"],
    ),
    (
        "token",
        &[
            "token --device toy-1",
            "token --scope call,read --client ci --ttl-s 3600",
            "token --device toy-1 --json",
        ],
    ),
    (
        "login",
        &[
            "login https://switchboard.example",
            "login https://switchboard.example --context production",
            "login http://127.0.0.1:8080 --key-stdin <key.txt",
        ],
    ),
    ("contexts list", &["contexts list", "contexts list -o json"]),
    (
        "contexts use",
        &["contexts use production", "contexts use --none"],
    ),
    (
        "contexts remove",
        &[
            "contexts remove production",
            "contexts remove 127.0.0.1:8080",
        ],
    ),
    (
        "completions",
        &[
            "completions bash >~/.local/share/bash-completion/completions/switchboard",
            "completions zsh >~/.zfunc/_switchboard",
            "completions fish >~/.config/fish/completions/switchboard.fish",
        ],
    ),
    ("man", &["man ~/.local/share/man/man1", "man ./man"]),
    (
        "npcs create",
        &[
            "npcs create '{\"name\":\"Rex\",\"persona\":{\"role\":\"a dog\"}}'",
            "npcs create --template tpl_01a1fdc1e83670f68020c071fd533605 --device-id toy-1",
        ],
    ),
    (
        "npcs default",
        &[
            "npcs default",
            "npcs default npc_01a1fdc1e83670f68020c071fd533605",
            "npcs default --none",
        ],
    ),
    (
        "templates export",
        &[
            "templates export tpl_01a1fdc1e83670f68020c071fd533605 rex.png",
            "templates export tpl_01a1fdc1e83670f68020c071fd533605 >rex.json",
        ],
    ),
    (
        "skills upload",
        &[
            "skills upload guide.pdf",
            "skills upload guide.txt --name Guide --locale de",
            "skills upload guide.md --no-wait",
        ],
    ),
    (
        "skills search",
        &[
            "skills search skb_01a1fdc1e83670f68020c071fd533605 'how do I reset it?'",
            "skills search skb_01a1fdc1e83670f68020c071fd533605 reset --limit 3 --json",
        ],
    ),
    (
        "voices upload",
        &[
            "voices upload anna.wav --consent 'I agree' --consent-by Anna",
            "voices upload anna.wav --name Anna --language de-DE --consent 'I agree' --consent-by Anna",
        ],
    ),
    (
        "voices train",
        &[
            "voices train voice_01a1fdc1e83670f68020c071fd533605",
            "voices train voice_01a1fdc1e83670f68020c071fd533605 --context production",
        ],
    ),
    (
        "stdio",
        &[
            "stdio --device toy-1",
            "stdio --all",
            "stdio --npc npc_01a1fdc1e83670f68020c071fd533605",
        ],
    ),
    (
        "convert",
        &[
            "convert --from json --to flatbuffers <message.json >message.bin",
            "convert --from flatbuffers --to json <message.bin",
        ],
    ),
    (
        "doctor",
        &[
            "doctor",
            "doctor --json",
            "doctor --url https://switchboard.example",
        ],
    ),
    (
        "migrate",
        &[
            "migrate",
            "migrate --database-url postgres://user@host/switchboard",
        ],
    ),
    (
        "edge",
        &[
            "edge --redis-url redis://redis:6379",
            "edge --tls-cert cert.pem --tls-key key.pem",
        ],
    ),
    (
        "gateway",
        &[
            "gateway --redis-url redis://redis:6379",
            "gateway --http-listen 0.0.0.0:8080",
        ],
    ),
    (
        "chat",
        &[
            "chat --redis-url redis://redis:6379",
            "chat --completions-endpoint http://models:8000/v1 --completions-model small",
        ],
    ),
    (
        "control",
        &[
            "control --redis-url redis://redis:6379",
            "control --http-listen 0.0.0.0:8080",
        ],
    ),
];

/// Returns the end of the help of a command such as `calls show`.
pub(super) fn of(path: &str) -> Option<String> {
    let mut all = EXAMPLES.iter();
    let (_, examples) = all.find(|(name, _)| *name == path)?;
    Some(
        examples
            .iter()
            .fold("Examples:".to_owned(), |text, example| {
                format!("{text}\n  switchboard {example}")
            }),
    )
}
