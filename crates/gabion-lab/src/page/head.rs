//! The top of the page: what was compared, where, and under which settings.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde_json::Value;

use super::charts::class;
use super::format::escaped;
use crate::result::PhaseResult;
use crate::summary::Summary;
use crate::text::Unit;

/// Settings with one of these in their names are told at the top when all targets share them; all
/// others are in the fold-out.
const PROMINENT: [&str; 6] = [
    "background",
    "buffer",
    "cache",
    "compression",
    "durab",
    "sync",
];

/// Values of settings by name, in the order in which they were first seen.
type Settings = BTreeMap<String, Vec<String>>;

/// Writes the header and the bar with the targets.
pub(super) fn write(
    out: &mut String,
    summary: &Summary,
    results: &[PhaseResult],
    title: &str,
    notes: &[String],
) -> fmt::Result {
    let of_target = |target: &&str| {
        let mut settings = Settings::new();
        for result in results.iter().filter(|result| result.target == *target) {
            flatten("", &result.settings, &mut settings);
        }
        settings
    };
    let mut own: Vec<Settings> = summary.targets.iter().map(of_target).collect();
    let common = take_common(&mut own);
    writeln!(
        out,
        "<header><button id=\"theme\" type=\"button\" hidden=\"hidden\" \
         aria-label=\"Switch between light and dark\">◐</button>\n<h1>{title}</h1>"
    )?;
    for note in notes {
        writeln!(out, "<p class=\"note\">{}</p>", escaped(note))?;
    }
    writeln!(out, "<dl class=\"facts\">")?;
    for (name, values) in facts(results) {
        fact(out, name, &values)?;
    }
    let is_prominent = |name: &str| PROMINENT.iter().any(|word| name.contains(word));
    for (name, values) in common.iter().filter(|(name, _)| is_prominent(name)) {
        fact(out, &said(name), values)?;
    }
    writeln!(out, "</dl>")?;
    fold_out(out, summary, &common, &own)?;
    writeln!(
        out,
        "</header>\n<nav class=\"targets\" aria-label=\"Targets\">"
    )?;
    for (index, target) in summary.targets.iter().enumerate() {
        writeln!(
            out,
            "<button type=\"button\" class=\"{}\" data-pick=\"{index}\" aria-pressed=\"false\">\
             <i></i>{}</button>",
            class(index),
            escaped(target),
        )?;
    }
    writeln!(out, "</nav>")
}

/// What the results say of themselves; several values where they differ.
fn facts(results: &[PhaseResult]) -> Vec<(&'static str, Vec<String>)> {
    type Field = fn(&PhaseResult) -> String;
    let fields: [(&str, Field); 7] = [
        ("Machine", |r| r.machine.clone()),
        ("Version", |r| r.version.clone()),
        ("Records", |r| Unit::Count.text(r.records as f64)),
        ("Key + value", |r| {
            let (key, value) = (r.key_bytes as f64, r.value_bytes as f64);
            format!("{} + {}", Unit::Bytes.tick(key), Unit::Bytes.tick(value))
        }),
        ("Threads", |r| r.threads.to_string()),
        ("Seed", |r| r.seed.to_string()),
        ("Load", |r| match r.rate_per_s {
            Some(rate) => format!("open loop, {} due", Unit::PerSecond.text(rate)),
            None => "closed loop".to_owned(),
        }),
    ];
    let mut facts = Vec::new();
    for (name, field) in fields {
        let mut values: Vec<String> = Vec::new();
        for text in results.iter().map(field) {
            if !text.is_empty() && !values.contains(&text) {
                values.push(text);
            }
        }
        facts.push((name, values));
    }
    let repetitions = results.iter().map(|result| result.repetition).max();
    let repetitions = repetitions.map(|last| (last + 1).to_string());
    facts.push(("Repetitions", Vec::from_iter(repetitions)));
    facts
}

fn fact(out: &mut String, name: &str, values: &[String]) -> fmt::Result {
    if values.is_empty() {
        return Ok(());
    }
    let (name, values) = (escaped(name), escaped(&values.join(" · ")));
    writeln!(out, "<div><dt>{name}</dt><dd>{values}</dd></div>")
}

/// All settings: those that the targets share, then each target's own.
fn fold_out(
    out: &mut String,
    summary: &Summary,
    common: &Settings,
    own: &[Settings],
) -> fmt::Result {
    if common.is_empty() && own.iter().all(Settings::is_empty) {
        return Ok(());
    }
    writeln!(
        out,
        "<details class=\"settings\"><summary>Settings of each target</summary><div>"
    )?;
    let is_alone = summary.targets.len() == 1;
    if !common.is_empty() && !is_alone {
        block(out, "<h3>All targets</h3>", common)?;
    }
    for (index, (target, settings)) in summary.targets.iter().zip(own).enumerate() {
        let (class, target) = (class(index), escaped(target));
        let heading = format!("<h3 class=\"{class}\"><i></i>{target}</h3>");
        block(out, &heading, if is_alone { common } else { settings })?;
    }
    writeln!(out, "</div></details>")
}

fn block(out: &mut String, heading: &str, settings: &Settings) -> fmt::Result {
    writeln!(out, "<section>{heading}<dl>")?;
    for (name, values) in settings {
        fact(out, &said(name), values)?;
    }
    if settings.is_empty() {
        writeln!(out, "<div><dt>nothing of its own</dt></div>")?;
    }
    writeln!(out, "</dl></section>")
}

/// Adds every value inside of `value` to `settings`, under its path.
fn flatten(path: &str, value: &Value, settings: &mut Settings) {
    let text = match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                flatten(&path, field, settings);
            }
            return;
        }
        Value::Null => return,
        Value::String(text) => text.clone(),
        Value::Number(number) if path.ends_with("bytes") => {
            let bytes = number.as_f64().unwrap_or(f64::NAN);
            Unit::Bytes.tick(bytes)
        }
        other => other.to_string(),
    };
    let path = if path.is_empty() { "settings" } else { path };
    let values = settings.entry(path.to_owned()).or_default();
    if !values.contains(&text) {
        values.push(text);
    }
}

/// Removes from `own` what is the same for all, and returns it. One target shares all it has.
fn take_common(own: &mut [Settings]) -> Settings {
    let Some((first, others)) = own.split_first() else {
        return Settings::new();
    };
    let is_common = |(name, values): &(&String, &Vec<String>)| {
        others.iter().all(|other| other.get(*name) == Some(values))
    };
    let common = first.iter().filter(is_common);
    let common: Settings = common.map(|(n, v)| (n.clone(), v.clone())).collect();
    for settings in own {
        settings.retain(|name, _| !common.contains_key(name));
    }
    common
}

/// The name of a setting for people; that a setting is the store's goes without saying.
fn said(name: &str) -> String {
    let name = name.strip_prefix("store.").unwrap_or(name);
    let name = name.strip_suffix("_bytes").unwrap_or(name);
    name.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_targets_share_is_told_once() {
        let settings = |value: Value| {
            let mut settings = Settings::new();
            flatten("", &value, &mut settings);
            settings
        };
        let mut own = [
            settings(json!({"cache_bytes": 1024, "x": {"a": 1, "none": null}, "list": [1, 2]})),
            settings(json!({"cache_bytes": 1024, "x": {"a": 2}, "list": [1, 2]})),
        ];
        let common = take_common(&mut own);
        let names = common
            .iter()
            .map(|(name, values)| (name.as_str(), &*values[0]));
        assert_eq!(
            names.collect::<Vec<_>>(),
            [("cache_bytes", "1 KiB"), ("list", "[1,2]")]
        );
        assert_eq!(own[1]["x.a"], ["2"]);
        assert_eq!((own[0].len(), own[1].len()), (1, 1));
        let mut alone = [settings(json!("plain"))];
        assert_eq!(take_common(&mut alone)["settings"], ["plain"]);
        assert!(alone[0].is_empty());
    }
}
