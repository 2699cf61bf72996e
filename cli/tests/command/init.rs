//! `serializer init`: the written files work at once, and existing files stay as they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use webhook_serializer::providers::webhook_senders;

use crate::running::{LocalProcess, complained, file, folder, printed, ran, serializer};

/// A folder in which `init` has written its files.
struct WrittenProject {
    folder: tempfile::TempDir,
    told: Value,
}

impl WrittenProject {
    fn with(providers: &[&str], options: &[&str]) -> Self {
        let folder = folder();
        let providers = providers.iter().flat_map(|name| ["--provider", name]);
        let arguments: Vec<&str> = ["init", path(folder.path()), "--json"]
            .into_iter()
            .chain(providers)
            .chain(options.iter().copied())
            .collect();
        let done = ran(&arguments);
        assert!(done.status.success(), "{arguments:?}: {}", complained(&done));
        let told = serde_json::from_str(&printed(&done)).expect("it prints JSON");
        Self { folder, told }
    }

    fn sources(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("sources.toml")).expect("it is written")
    }

    fn keys(&self) -> BTreeMap<String, Vec<String>> {
        serde_json::from_value(self.told["keys"].clone()).expect("each source has keys")
    }

    /// Returns a shell line as a command in the folder.
    fn shell(&self, line: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(self.folder.path()).stdin(Stdio::null());
        for (name, value) in serializer(&[]).get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell
    }

    /// Starts the Procfile's serializer, sends the samples as the printed line does, waits until each is accepted, and
    /// returns the stored keys.
    fn stored(&self) -> BTreeSet<String> {
        let procfile = std::fs::read_to_string(self.folder.path().join("Procfile")).expect("it is written");
        let line = procfile.lines().find_map(|line| line.strip_prefix("serializer: ")).expect("it starts the command");
        let mut local = LocalProcess::spawn(self.shell(&format!("exec {line} --port 0 --console-port 0 --json")));
        let next = self.told["next"].as_array().expect("it lists commands");
        let send = next.iter().filter_map(Value::as_str).find(|line| line.contains(" send ")).expect("one sends");
        let sent = self.shell(&format!("{send} --json --to {}", local.url)).output().expect("sh can be run");
        assert!(sent.status.success(), "{}{}", printed(&sent), complained(&sent));
        for _ in printed(&sent).lines() {
            local.until(|told| told["what"] == "accepted");
        }
        let listed = printed(&local.ran(&["list", "--json"]));
        let order = |line: &str| -> Value { serde_json::from_str(line).expect("it prints JSON") };
        listed.lines().map(|line| order(line)["entity"].as_str().expect("it has a key").to_owned()).collect()
    }

    /// Checks the document, and that each of its samples is stored under the key of the source's comment.
    fn works(&self) {
        let checked = ran(&["check", "--json", path(&self.folder.path().join("sources.toml"))]);
        assert!(checked.status.success(), "{}", complained(&checked));
        for line in printed(&checked).lines() {
            let source: Value = serde_json::from_str(line).expect("it prints JSON");
            assert_eq!(
                (&source["errors"], &source["warnings"]),
                (&Value::Array(vec![]), &Value::Array(vec![])),
                "{source}"
            );
            let is_public = source["provider"] == "shipstation-v2";
            let notes = source["notes"].to_string();
            assert_eq!(notes.contains("replace it before you deploy"), !is_public, "{source}");
        }
        let keys = self.keys();
        assert_eq!(self.stored(), keys.values().flatten().cloned().collect());
        let text = self.sources();
        for (source, keys) in keys {
            let (_, own) = text.split_once(&format!("[sources.{source}]\n")).expect("it has the source");
            let own = own.split("\n[sources.").next().unwrap_or_default();
            assert!(own.contains(&format!("# Its samples have the key {}.\n", keys.join(", "))), "{own}");
        }
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// An older Node refuses the receiver's option without a reason.
#[test]
fn typescript_is_told_with_its_node() {
    for (language, handler, is_told) in
        [("typescript", "forward", true), ("typescript", "invoke=orders", true), ("python", "forward", false)]
    {
        let folder = folder();
        let told = ["--provider", "shopify", "--language", language, "--handler", handler];
        let done = ran(&[&["init", path(folder.path())], &told[..]].concat());
        assert_eq!(printed(&done).contains("TypeScript needs Node 22.6 or newer."), is_told, "{done:?}");
    }
}

/// `uvx` and `npx` are on the PATH, and the command itself is not.
#[test]
fn procfile_starts_the_command_as_its_package_does() {
    let folder = folder();
    let typed = "sh --from /tmp/packed.whl webhook-serializer-cli";
    let mut command = serializer(&["init", path(folder.path()), "--provider", "shopify", "--handler", "log"]);
    let done = command.env("SERIALIZER_COMMAND", typed).output().expect("it can be run");
    let procfile = std::fs::read_to_string(folder.path().join("Procfile")).expect("it is written");
    assert_eq!(procfile, format!("serializer: {typed} local --sources sources.toml\n"));
    assert!(printed(&done).contains(&format!("  {typed} list --local\n")), "{done:?}");
}

/// Promise: what `serializer init` writes is valid and runs at once; each sample gets the key that its comment names.
#[test]
fn written_files_work_for_each_provider() {
    for (number, provider) in webhook_senders().enumerate() {
        let language = ["typescript", "python"][number % 2];
        let written = WrittenProject::with(&[provider], &["--language", language]);
        written.works();
        assert!(written.keys()[provider].iter().all(|key| key.starts_with(&format!("{provider}/"))), "{provider}");
    }
}

#[test]
fn senders_of_one_order_share_its_key() {
    for language in ["typescript", "python"] {
        let written =
            WrittenProject::with(&["woocommerce", "stripe", "paypal", "shipstation-v1"], &["--language", language]);
        written.works();
        let keys = written.keys();
        for sender in ["woocommerce", "stripe", "paypal"] {
            assert_eq!(keys[sender], ["shop/order/727"], "{sender}");
        }
        assert!(keys["shipstation-v1"][0].starts_with("shipstation-v1/batch/"), "{keys:?}");
        assert!(written.sources().contains("\nentity = \"shop/order/{/data/orderNumber}\"\n"), "{}", written.sources());
    }
}

#[test]
fn relay_is_written_if_carrier_knows_the_orders_id() {
    for (providers, handler, is_relayed) in [
        (&["woocommerce", "shipstation-v1"][..], "forward", true),
        (&["woocommerce", "shipstation-v1"], "invoke=orders", true),
        (&["woocommerce", "shipstation-v1"], "log", false),
        (&["shopify", "shipstation-v1"], "forward", false),
        (&["woocommerce", "shipstation-v2"], "forward", false),
        (&["shipstation-v1"], "forward", false),
    ] {
        let written = WrittenProject::with(providers, &["--handler", handler, "--language", "python"]);
        let has = |name: &str| written.folder.path().join(name).exists();
        let has_source = written.sources().contains("[sources.parcels]");
        let found = [has("shipstation.py"), has("shipments.json"), has_source];
        assert_eq!(found, [is_relayed; 3], "{providers:?} with {handler}");
    }
}

#[test]
fn provider_without_webhooks_is_refused_with_its_page() {
    let folder = folder();
    let done = ran(&["init", path(folder.path()), "--provider", "commercetools", "--handler", "log"]);
    assert!(complained(&done).contains("the events of commercetools come by a queue; docs/queues.md"), "{done:?}");
}

#[test]
fn all_providers_fit_into_one_document() {
    let names: Vec<&str> = webhook_senders().collect();
    let written = WrittenProject::with(&names, &["--handler", "log", "--key", "pottery"]);
    written.works();
    let keys = written.keys();
    let shared: Vec<&String> = keys
        .iter()
        .filter(|(_, keys)| keys.iter().all(|key| key.starts_with("pottery/order/")))
        .map(|(name, _)| name)
        .collect();
    // The other shops have ids of their own, and the other senders name no order.
    let expected = [
        "adobe-commerce",
        "aftership",
        "checkout-com",
        "easypost",
        "paypal",
        "sendcloud",
        "shippo",
        "standard-webhooks",
        "stripe",
        "twilio",
    ];
    assert_eq!(shared, expected);
    let distinct: BTreeSet<&Vec<String>> = shared.iter().map(|name| &keys[*name]).collect();
    assert_eq!(distinct.len(), 1, "{distinct:?}");
}

#[test]
fn existing_files_are_named_and_stay_unchanged() {
    let folder = folder();
    file(&folder, "sources.toml", "# mine\n");
    std::os::unix::fs::symlink("nowhere", folder.path().join("receiver.py")).expect("a link can be made");
    let arguments = ["init", path(folder.path()), "--provider", "shopify", "--language", "python"];
    let refused = ran(&arguments);
    assert_eq!(refused.status.code(), Some(1));
    assert!(complained(&refused).contains("sources.toml, receiver.py. Move them away"), "{}", complained(&refused));
    let refused = ran(&[&arguments[..], &["--json"]].concat());
    let told: Value = serde_json::from_str(&printed(&refused)).expect("it prints JSON");
    assert_eq!(told["existing"], serde_json::json!(["sources.toml", "receiver.py"]));
    assert_eq!(std::fs::read_dir(folder.path()).expect("it can be read").count(), 2);
    assert_eq!(std::fs::read_to_string(folder.path().join("sources.toml")).expect("it is there"), "# mine\n");
}

#[test]
fn refused_choices_say_what_to_give() {
    let folder = folder();
    let folder = path(folder.path());
    for (arguments, said) in [
        (&[][..], "add --provider NAME (for several, repeat it), and --language typescript or --language python"),
        (&["--provider", "shopify"], "add --language typescript or --language python (or --handler log)"),
        (&["--provider", "shopfy", "--handler", "log"], "did you mean `shopify`?"),
        (&["--provider", "shipstation", "--handler", "log"], "did you mean `shipstation-v1` or `shipstation-v2`?"),
        (&["--provider", "shopify", "--handler", "forwrad"], "did you mean `forward`?"),
        (&["--provider", "shopify", "--handler", "invoke"], "such as invoke=orders:live"),
        (
            &["--provider", "shopify", "--handler", "forward=http://example.com/", "--language", "python"],
            "http:// needs allow_private",
        ),
        (&["--provider", "shopify", "--handler", "log", "--key", "a/b"], "use up to 64 letters"),
    ] {
        let refused = ran(&[&["init", folder], arguments].concat());
        assert!(
            !refused.status.success() && complained(&refused).contains(said),
            "{arguments:?}: {}",
            complained(&refused)
        );
        assert_eq!(std::fs::read_dir(folder).expect("it can be read").count(), 0, "{arguments:?}");
    }
}
