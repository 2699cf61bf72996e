//! Combinations of parameters, and what a change of one parameter does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    core,
    document::{DeployedTemplate, SamTemplate, texts},
    observability,
};

/// Returns valid values of each parameter, the default first. `.ci/parameters` checks them against the
/// patterns.
fn values() -> BTreeMap<String, Vec<String>> {
    let values: Value = serde_json::from_str(include_str!("parameters.json")).expect("it is JSON");
    let right = |held: &Value| held["right"].as_array().expect("a list").iter().map(crate::document::text).collect();
    values.as_object().expect("a mapping").iter().map(|(name, held)| (name.clone(), right(held))).collect()
}

/// A deterministic sequence of numbers.
struct RandomSequence(u64);

impl RandomSequence {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }
}

type Given<'a> = Vec<(&'a str, &'a str)>;

/// Returns every pair of values with all other parameters at their defaults, and 400 random combinations.
fn combinations(values: &BTreeMap<String, Vec<String>>) -> Vec<Given<'_>> {
    let all: Vec<_> = values.iter().map(|(name, held)| (name.as_str(), held)).collect();
    let mut made = Vec::new();
    for (place, (one, left)) in all.iter().enumerate() {
        for (other, right) in &all[place + 1..] {
            made.extend(
                left.iter().flat_map(|left| {
                    right.iter().map(move |right| vec![(*one, left.as_str()), (*other, right.as_str())])
                }),
            );
        }
    }
    let mut random = RandomSequence(37);
    for _ in 0..400 {
        made.push(all.iter().map(|(name, held)| (*name, held[random.below(held.len())].as_str())).collect());
    }
    made
}

/// Promise: the template, the alarms, the dashboard and the domain deploy with every combination of parameters.
#[test]
fn every_combination_of_parameters_deploys_all_stacks() {
    let template = core();
    let values = values();
    assert!(template.defaults().keys().eq(values.keys()), "tests/template/parameters.json has other parameters");
    let [observability, domain] = ["templates/observability.yaml", "templates/domain.yaml"].map(SamTemplate::read);
    for given in combinations(&values) {
        let deployed = template.deployed(&given);
        assert_eq!(deployed.broken, [""; 0], "{given:?}");
        let declared = template.0["Outputs"].as_object().expect("a mapping").keys();
        assert!(declared.eq(deployed.outputs.keys()), "{given:?}: each output exists, for the stacks that read it");
        for (other, given) in [(&observability, vec![("Email", "a@example.com")]), (&domain, vec![])] {
            let deployed = other.deployed_beside(&given, &deployed.outputs);
            assert_eq!(deployed.broken, [""; 0], "{given:?}");
        }
        let dashboard = observability.deployed_beside(&[], &deployed.outputs);
        observability::dashboard(&dashboard);
    }
}

/// Returns the properties whose change replaces a resource of this type, by cfn-lint's schemas.
fn create_only(kind: &str) -> Vec<String> {
    let all: Value = serde_json::from_str(include_str!("create-only.json")).expect("it is JSON");
    let paths = all[kind].as_array().unwrap_or_else(|| panic!("create-only.json lacks {kind}: .ci/parameters --write"));
    paths.iter().map(crate::document::text).collect()
}

fn replaced<'a>(before: &'a DeployedTemplate, after: &DeployedTemplate) -> BTreeSet<&'a str> {
    let changed = |(name, resource): &(&str, &Value)| {
        let path = |path: &String| format!("{name} Properties {}", path.replace('/', " "));
        let kind = resource["Type"].as_str().expect("a type");
        create_only(kind).iter().map(path).any(|path| before.at(&path) != after.at(&path))
    };
    let stays = |(name, _): &(&str, &Value)| !after.at(name).is_null();
    before.all().filter(stays).filter(changed).map(|(name, _)| name).collect()
}

/// The resources that a change of each parameter replaces, adds or removes. No change ever replaces a table,
/// queue or URL, and only `Tables` adds or removes tables.
const LISTED: &[(&str, &[&str])] = &[
    ("Sources", &["ReadSources"]),
    ("Tables", &["EntitiesTable", "InboxTable"]),
    (
        "FrontDoor",
        &[
            "IngestApi",
            "IngestApiIntegration",
            "IngestApiPermission",
            "IngestApiRoute",
            "IngestApiStage",
            "IngestInvokePermission",
            "IngestUrl",
            "IngestUrlPermission",
        ],
    ),
];

#[test]
fn changed_parameter_replaces_only_listed_resources() {
    let template = core();
    let values = values();
    for (name, held) in &values {
        let mut found = BTreeSet::new();
        for base in [&[][..], &[("FrontDoor", "both")], &[("Tables", "restored"), ("Sources", "/shop/sources")]] {
            let deploy = |value: &str| {
                let mut given = base.to_vec();
                given.push((name, value));
                template.deployed(&given)
            };
            let all: Vec<DeployedTemplate> = held.iter().map(|value| deploy(value)).collect();
            for (before, after) in all.iter().flat_map(|before| all.iter().map(move |after| (before, after))) {
                let replaced = replaced(before, after);
                let named = |resource: &&str| name == "Sources" && *resource == "ReadSources";
                assert!(replaced.iter().all(named), "{name} replaces {replaced:?}");
                let gone = before.all().map(|(name, _)| name).filter(|name| after.at(name).is_null());
                found.extend(replaced.iter().copied().chain(gone).map(str::to_owned));
            }
        }
        let listed = LISTED.iter().find(|(of, _)| of == name).map_or(&[][..], |(_, listed)| listed);
        assert!(found.iter().map(String::as_str).eq(listed.iter().copied()), "{name} changes {found:?}");
    }
}

/// Promise: after a change of `Sources`, functions may read the old document until all read the new.
#[test]
fn functions_keep_permission_to_read_old_sources_until_updated() {
    let sources = ["", "/shop/sources", "/shop-sources", crate::SECRET];
    let all = sources.map(|sources| core().deployed(&[("Sources", sources)]));
    for (place, before) in all.iter().enumerate() {
        for function in ["Ingest", "Worker", "Scheduler"] {
            // CloudFormation creates the new policy before it updates the function, and deletes the old
            // policy last.
            let depends = texts(before.at(&format!("{function} DependsOn")));
            assert!(depends.contains(&"ReadSources".to_owned()), "{function}: {depends:?}");
        }
        assert_eq!(before.at("ReadSources Properties Roles"), &json!(["IngestRole", "WorkerRole", "SchedulerRole"]));
        for after in all.iter().skip(place + 1) {
            assert!(replaced(before, after).contains("ReadSources"), "an update in place would revoke the old right");
        }
    }
}

#[test]
fn changed_kms_key_of_tables_changes_no_iam_policy() {
    let rights = |key: &str| {
        let deployed = core().deployed(&[("TableKeyArn", key)]);
        let mut rights: BTreeMap<&str, &Value> = deployed.of_type("AWS::IAM::Role");
        rights.extend(["AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"].iter().flat_map(|kind| deployed.of_type(kind)));
        format!("{rights:?}")
    };
    assert_eq!(rights(""), rights("arn:aws:kms:eu-central-1:123456789012:key/mine"));
    assert!(rights("").contains("kms:Decrypt"));
}
