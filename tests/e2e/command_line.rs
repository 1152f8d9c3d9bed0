//! `switchboard templates`, `npcs` and `pictures` against a control plane: output, effects and
//! errors. `skills` and `voices` have files of their own.

use std::{path::PathBuf, process::Command};

use serde_json::{Value, json};
use switchboard_test_support::command::printed;

use crate::cluster::TestCluster;

const PIXEL: &[u8] = include_bytes!("objects/pixel.png");

/// Runs commands against a running system.
struct Shell {
    cluster: TestCluster,
    folder: tempfile::TempDir,
}

impl Shell {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let objects = format!("file://{}/objects", folder.path().display());
        let cluster = TestCluster::start_with(0, &[("SWITCHBOARD_OBJECTS", &objects)]).await;
        Self { cluster, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The stdout of a command, or its stderr if `code` is not 0. `code` is the expected exit code.
    fn printed(&self, arguments: &[&str], input: &str, code: i32) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("SWITCHBOARD_URL", self.cluster.control.address("http_url"))
            .env("SWITCHBOARD_API_KEY", &self.cluster.org.key);
        printed(&mut command, input, code)
    }

    fn shown(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.printed(arguments, "", 0)).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_are_created_updated_and_deleted() {
    let shell = Shell::open().await;
    let bello = r#"{"name": "小白", "persona": {"role": "a dog", "greeting": ["汪"]}}"#;
    std::fs::write(shell.file("bello.json"), bello).unwrap();
    let create = [
        "templates",
        "create",
        "bello.json",
        "--idempotency-key",
        "once",
    ];
    let id = shell.printed(&create, "", 0);
    assert!(id.starts_with("tpl_"), "{id}");
    assert_eq!(
        shell.printed(&create, "", 0),
        id,
        "the same key makes nothing twice"
    );
    let rex = shell.printed(&["templates", "create"], r#"{"name": "Rex"}"#, 0);
    let lines = format!("{id}\t小白\tprivate\t1\n{rex}\tRex\tprivate\t1");
    assert_eq!(shell.printed(&["templates", "list"], "", 0), lines);
    assert_eq!(shell.printed(&["templates", "list", "--public"], "", 0), "");
    let patch = r#"{"tags": ["dog"], "persona": {"role": null}}"#;
    let edited = shell.printed(
        &["templates", "edit", &id, "-", "--if-version", "1"],
        patch,
        0,
    );
    let edited: Value = serde_json::from_str(&edited).unwrap();
    assert_eq!(
        (
            &edited["tags"],
            &edited["persona"]["role"],
            &edited["version"]
        ),
        (&json!(["dog"]), &Value::Null, &json!(2))
    );
    assert_eq!(shell.shown(&["templates", "show", &id]), edited);
    let stale = shell.printed(&["templates", "edit", &id, "--if-version", "1"], patch, 1);
    assert!(stale.contains("412"), "{stale}");
    shell.printed(&["templates", "edit", &id], r#"{"locale": "zh"}"#, 0);
    let wrong = shell.printed(&["templates", "create"], r#"{"name": "x", "mood": 1}"#, 1);
    assert!(wrong.contains("`/mood`"), "{wrong}");
    assert!(
        shell
            .printed(&["templates", "create", "no.json"], "", 1)
            .contains("no.json")
    );
    shell.printed(&["templates", "show", "npc_1"], "", 64);
    shell.printed(&["templates", "delete", &id], "", 0);
    assert!(
        shell
            .printed(&["templates", "show", &id], "", 1)
            .contains("404")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn npcs_are_created_updated_and_deleted() {
    let shell = Shell::open().await;
    let settings = r#"{"name": "Dog", "persona": {"role": "a dog"}}"#;
    let template = shell.printed(&["templates", "create"], settings, 0);
    let create = [
        "npcs",
        "create",
        r#"{"name": "Rex"}"#,
        "--template",
        &template,
        "--idempotency-key",
        "once",
    ];
    let id = shell.printed(&create, "", 0);
    assert!(id.starts_with("npc_"), "{id}");
    assert_eq!(shell.printed(&create, "", 0), id, "nothing is made twice");
    let line = format!("{id}\tRex\t{template}\t");
    let listed = ["npcs", "list", "--template", &template];
    assert_eq!(shell.printed(&listed, "", 0), line.trim_end());

    let edit = |arguments: &[&str], patch: &str, code: i32| {
        shell.printed(
            &[&["npcs", "edit", id.as_str()], arguments].concat(),
            patch,
            code,
        )
    };
    let patch = r#"{"device_ids": ["toy-1"], "overrides": {"persona": {"role": "a guide dog"}}, "template_version": 1}"#;
    let edited: Value =
        serde_json::from_str(&edit(&["-", "--if-version", "1-1"], patch, 0)).unwrap();
    let expected = json!({"device_ids": ["toy-1"], "template_version": 1, "version": 2, "effective_version": 1});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&edited[name], value, "{name}");
    }
    assert_eq!(edited["effective"]["persona"]["role"], "a guide dog");
    assert_eq!(shell.shown(&["npcs", "show", &id]), edited);
    assert_eq!(
        shell.printed(&["npcs", "list"], "", 0),
        format!("{line}toy-1")
    );
    assert!(edit(&["--if-version", "1-1"], patch, 1).contains("412"));
    edit(&["--if-version", "newest"], patch, 64);
    edit(&["--if-version", "1", "no.json"], "", 1);

    std::fs::write(
        shell.file("back.json"),
        r#"{"overrides": {"persona": null}}"#,
    )
    .unwrap();
    let edited: Value = serde_json::from_str(&edit(&["back.json"], "", 0)).unwrap();
    assert_eq!(edited["effective"]["persona"]["role"], "a dog");
    let wrong = edit(&[], r#"{"overrides": {"mood": 1}}"#, 1);
    assert!(wrong.contains("mood"), "{wrong}");
    assert_eq!(shell.shown(&["npcs", "show", &id]), edited);
    shell.printed(&["npcs", "delete", &id], "", 0);
    assert!(edit(&[], patch, 1).contains("404"));
    assert_eq!(shell.printed(&["npcs", "list"], "", 0), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_and_cards_round_trip_through_files() {
    let shell = Shell::open().await;
    std::fs::write(shell.file("bello.png"), PIXEL).unwrap();
    let upload = [
        "pictures",
        "upload",
        "bello.png",
        "--name",
        "Bello & Co",
        "--uri",
        "pics://a?b=c",
    ];
    let picture = shell.printed(&upload, "", 0);
    assert!(picture.starts_with("pic_"), "{picture}");
    let line = format!("{picture}\tBello & Co\timage/png\t1x1\t{}", PIXEL.len());
    assert_eq!(shell.printed(&["pictures", "list"], "", 0), line);
    assert_eq!(
        shell.shown(&["pictures", "show", &picture])["uri"],
        "pics://a?b=c"
    );
    shell.printed(&["pictures", "download", &picture, "copy.png"], "", 0);
    assert_eq!(std::fs::read(shell.file("copy.png")).unwrap(), PIXEL);
    assert!(
        shell
            .printed(&["pictures", "upload", "-"], "no picture", 1)
            .contains("415")
    );

    let settings =
        json!({"name": "Bello", "avatar": picture, "persona": {"role": "a dog"}}).to_string();
    let id = shell.printed(&["templates", "create"], &settings, 0);
    let printed = shell.shown(&["templates", "export", &id]);
    assert_eq!(
        (&printed["spec"], &printed["data"]["name"]),
        (&json!("chara_card_v2"), &json!("Bello"))
    );
    shell.printed(&["templates", "export", &id, "card.png"], "", 0);
    assert!(std::fs::read(shell.file("card.png")).unwrap().len() > PIXEL.len());
    let import = [
        "templates",
        "import",
        "card.png",
        "--idempotency-key",
        "card",
    ];
    let copy = shell.printed(&import, "", 0);
    assert_eq!(shell.printed(&import, "", 0), copy);
    let copied = shell.shown(&["templates", "show", &copy]);
    assert_eq!(copied["persona"]["role"], "a dog");
    assert_ne!(copied["avatar"], picture.as_str());
    shell.printed(&["templates", "export", &id, "card.json"], "", 0);
    shell.printed(&["templates", "import", "card.json"], "", 0);
    let in_use = shell.printed(&["pictures", "delete", &picture], "", 1);
    assert!(in_use.contains("409"), "{in_use}");
    let avatar = copied["avatar"].as_str().unwrap();
    shell.printed(&["templates", "delete", &copy], "", 0);
    shell.printed(&["pictures", "delete", avatar], "", 0);
    assert!(
        shell
            .printed(&["pictures", "show", avatar], "", 1)
            .contains("404")
    );
}
