//! backup: create, list, verify, restore and prune, and what is refused.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Outcome, Place, bare, names};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs the program without a store, which must succeed, and gives its JSON.
fn json(arguments: &[&str]) -> Value {
    let outcome = bare(arguments);
    assert_eq!(outcome.status, Some(0), "{arguments:?}: {outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// The sentence of what must fail.
fn sentence(outcome: &Outcome) -> &str {
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    let sentence = outcome.stderr.trim_end();
    assert!(sentence.starts_with("gabion: "), "{outcome:?}");
    assert_eq!(sentence.lines().count(), 1, "{outcome:?}");
    sentence
}

#[test]
fn backups_are_made_listed_verified_restored_and_pruned() {
    for engine in ["wip", "flex"] {
        let place = Place::new();
        let repo = place.path("repo");
        let repo = text(&repo);
        for round in 0..3 {
            for number in 0..50 {
                let (key, value) = (format!("k{number:03}"), format!("value {round}"));
                if number % 3 >= round {
                    place.ok(&["put", &key, &value, "--engine", engine]);
                }
            }
            let made = place.ok(&[
                "backup", "create", "--repo", repo, "--json", "--rate", "9GB",
            ]);
            let made: Value = serde_json::from_str(&made).unwrap();
            assert_eq!(made["id"], round + 1);
            assert_eq!(made["engine"], engine);
            place.ok(&["dump", &format!("{round}.dump")]);
        }
        let list = json(&["backup", "list", "--repo", repo, "--json"]);
        let ids: Vec<_> = list["backups"].as_array().unwrap().iter().collect();
        assert_eq!(ids.len(), 3);
        assert!(ids.is_sorted_by_key(|backup| backup["position"].as_u64().unwrap()));
        let lines = bare(&["backup", "list", "--to", repo]).stdout;
        assert_eq!(lines.lines().count(), 3, "{lines}");
        names(&lines, &[engine, "position", text(&place.db())]);

        let report = json(&["backup", "verify", "--repo", repo, "--json"]);
        assert_eq!(report["backups"], 3);
        assert_eq!(report["problems"].as_array().unwrap().len(), 0);
        for id in 1..=3 {
            let restored = Place::new();
            let said = restored.ok(&["backup", "restore", &id.to_string(), "--repo", repo]);
            names(&said, &[&format!("backup {id}"), text(&restored.db())]);
            let dump = restored.ok(&["dump"]);
            let kept = place.path(&format!("{}.dump", id - 1));
            assert_eq!(dump, fs::read_to_string(kept).unwrap());
            // Never over what is there.
            let again = restored.fails(1, &["backup", "restore", "1", "--repo", repo]);
            names(&again, &["already exists"]);
            assert_eq!(restored.ok(&["dump"]), dump);
        }

        let none = json(&[
            "backup",
            "prune",
            "--repo",
            repo,
            "--older-than",
            "1d",
            "--json",
        ]);
        assert_eq!(none["removed"].as_array().unwrap().len(), 0);
        let said = bare(&["backup", "prune", "--repo", repo, "--keep", "1"]).stdout;
        names(&said, &["removed: 2 backups"]);
        let list = json(&["backup", "list", "--repo", repo, "--json"]);
        assert_eq!(list["backups"][0]["id"], 3);
        assert_eq!(list["backups"].as_array().unwrap().len(), 1);
        let report = json(&["backup", "verify", "3", "--repo", repo, "--json"]);
        assert_eq!(report["problems"].as_array().unwrap().len(), 0);
    }
}

#[test]
fn a_store_is_restored_to_writes_between_its_backups() {
    for engine in ["wip", "flex"] {
        let place = Place::new();
        let repo = place.path("repo");
        let repo = text(&repo);
        let create = ["backup", "create", "--log", "--repo", repo, "--json"];
        let mut positions = Vec::new();
        for round in 0..3 {
            for number in 0..4 {
                let value = format!("{round}{number}");
                place.ok(&["put", "key", &value, "--engine", engine]);
            }
            let made: Value = serde_json::from_str(&place.ok(&create)).unwrap();
            positions.push(made["position"].as_u64().unwrap());
            assert_eq!(made["log"]["position"], made["position"]);
        }
        let list = json(&["backup", "list", "--repo", repo, "--json"]);
        for backup in list["backups"].as_array().unwrap() {
            assert_eq!(backup["log"]["position"], positions[2]);
        }
        let lines = bare(&["backup", "list", "--repo", repo]).stdout;
        names(
            &lines,
            &[&format!("position {} to {}", positions[0], positions[2])],
        );
        for number in 1..4 {
            let restored = Place::new();
            let position = (positions[0] + number).to_string();
            let arguments = ["backup", "restore", "--until", &position, "--repo", repo];
            let said = restored.ok(&arguments);
            names(&said, &["backup 1", &format!("up to position {position}")]);
            let value = format!("1{}\n", number - 1);
            assert_eq!(restored.ok(&["get", "key"]), value);
        }
        let restored = Place::new();
        let arguments = ["backup", "restore", "1", "--until", "2100-01-01T00:00:00Z"];
        let said = restored.ok(&[&arguments[..], &["--repo", repo, "--json"]].concat());
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(
            (&said["id"], &said["restored_position"]),
            (&1.into(), &positions[2].into())
        );
        assert_eq!(restored.ok(&["get", "key"]), "23\n");
        let late = restored.path("late");
        let beyond = (positions[2] + 1).to_string();
        let arguments = ["backup", "restore", "--until", &beyond, "--repo", repo];
        let refused = bare(&[&arguments[..], &["--db", text(&late)]].concat());
        names(sentence(&refused), &["ends at position"]);
        let report = json(&["backup", "verify", "--repo", repo, "--json"]);
        assert_eq!(
            (&report["log_parts"], &report["backups"]),
            (&2.into(), &3.into())
        );
        let said = bare(&["backup", "prune", "--repo", repo, "--keep", "1"]).stdout;
        names(&said, &["removed: 2 backups", "2 parts of logs"]);
    }
}

#[test]
fn bad_repositories_and_backups_are_told() {
    let place = Place::new();
    place.ok(&["put", "stone", "granite"]);
    let repo = place.path("repo");
    let repo = text(&repo);
    names(
        sentence(&bare(&["backup", "list", "--repo", repo])),
        &["not a backup repository", "does not exist"],
    );
    let letters = place.path("letters");
    fs::create_dir(&letters).unwrap();
    place.file("letters/letter", "dear");
    let refused = place.fails(1, &["backup", "create", "--repo", text(&letters)]);
    names(&refused, &["not a backup repository", "letter"]);

    place.ok(&["backup", "create", "--repo", repo]);
    let missing = place.path("new");
    let arguments = [
        "backup",
        "restore",
        "9",
        "--repo",
        repo,
        "--db",
        text(&missing),
    ];
    names(
        sentence(&bare(&arguments)),
        &["no backup 9", "choose from: 1"],
    );
    assert!(!missing.exists());

    let objects = Path::new(repo).read_dir().unwrap().flatten();
    let object = objects
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "object"))
        .unwrap();
    fs::rename(&object, object.with_extension("gone")).unwrap();
    let outcome = bare(&["backup", "verify", "--repo", repo]);
    names(
        sentence(&outcome),
        &["damaged or missing part", "back up again"],
    );
    names(&outcome.stdout, &[text(&object), "missing", "backup 1"]);
    let arguments = [
        "backup",
        "restore",
        "1",
        "--repo",
        repo,
        "--db",
        text(&missing),
    ];
    names(sentence(&bare(&arguments)), &[text(&object), "verify"]);
    assert!(!missing.exists());

    for wrong in [
        &["backup", "prune", "--repo", repo][..],
        &["backup", "prune", "--repo", repo, "--older-than", "soon"],
        &["backup", "verify", "one", "--repo", repo],
        &["backup", "verify", "--repo", repo, "--rate", "0"],
        &["backup", "restore", "--repo", repo],
        &["backup", "restore", "1", "--repo", repo, "--until", "soon"],
        &["backup", "list"],
    ] {
        assert_eq!(bare(wrong).status, Some(2), "{wrong:?}");
    }
}

#[test]
fn engines_without_backups_make_no_repository() {
    let place = Place::new();
    place.ok(&["put", "k", "v", "--engine", "scmkv", "--pool-bytes", "100M"]);
    let repo = place.path("repo");
    let refused = place.fails(1, &["backup", "create", "--repo", text(&repo)]);
    names(&refused, &["scmkv", "copy the directory"]);
    assert!(!repo.exists());
}
