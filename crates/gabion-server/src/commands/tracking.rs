//! `CLIENT TRACKING` and what belongs to it: see [`crate::tracking`].

use std::sync::Arc;

use crate::args::integer;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::tracking::{ClientTracking, TrackingMode, redirect_of};

/// `CLIENT TRACKING`: begins, changes or ends it.
///
/// # Errors
/// For options that do not go together, or not with those of before.
pub(crate) fn tracking(execution: &mut Execution<'_>) -> Result<()> {
    let (is_on, mut asked, prefixes) = parse(execution)?;
    if !is_on {
        end(execution);
        execution.reply.ok();
        return Ok(());
    }
    if asked.broadcasts && asked.choice != TrackingMode::All {
        return Err(Fault::line(
            "ERR OPTIN and OPTOUT are not compatible with BCAST",
        ));
    }
    if !asked.broadcasts && !prefixes.is_empty() {
        return Err(Fault::line(
            "ERR PREFIX option requires BCAST mode to be enabled",
        ));
    }
    let client = Arc::clone(&execution.session.client);
    let before = client.follows.lock().clone();
    if let Some(before) = &before {
        check_switch(before, &asked)?;
    }
    let had: Vec<Vec<u8>> = before
        .into_iter()
        .flat_map(|before| before.prefixes)
        .collect();
    let new: Vec<Vec<u8>> = match asked.broadcasts && prefixes.is_empty() && had.is_empty() {
        // Every key begins with nothing.
        true => vec![Vec::new()],
        false => prefixes,
    };
    for (index, prefix) in new.iter().enumerate() {
        let others = had.iter().filter(|other| *other != prefix);
        check_prefix(prefix, others.chain(&new[index + 1..]))?;
    }
    asked.prefixes = had.into_iter().chain(new).collect();
    execution.server.tracking.join(&client, asked);
    execution.session.tracks = true;
    execution.reply.ok();
    Ok(())
}

/// Whether it begins or ends, how, and the new prefixes.
fn parse(execution: &Execution<'_>) -> Result<(bool, ClientTracking, Vec<Vec<u8>>)> {
    let args = execution.args;
    let is_on = match args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(Fault::SYNTAX),
    };
    let (mut asked, mut prefixes) = (ClientTracking::default(), Vec::new());
    let mut at = 3;
    while let Some(word) = args.get(at) {
        at += 1;
        match (word.to_ascii_lowercase().as_slice(), args.get(at)) {
            (b"redirect", Some(id)) => {
                at += 1;
                if asked.redirect.is_some() {
                    return Err(Fault::line(
                        "ERR A client can only redirect to a single other client",
                    ));
                }
                let id = integer(id).ok_or(Fault::line("ERR Invalid client ID"))?;
                let known = u64::try_from(id).ok();
                let known = known.filter(|id| execution.server.clients.find(*id).is_some());
                asked.redirect = Some(known.ok_or(Fault::line(
                    "ERR The client ID you want redirect to does not exist",
                ))?);
            }
            (b"bcast", _) => asked.broadcasts = true,
            (b"optin" | b"optout", _) if asked.choice != TrackingMode::All => {
                return Err(Fault::line(
                    "ERR You can't specify both OPTIN mode and OPTOUT mode",
                ));
            }
            (b"optin", _) => asked.choice = TrackingMode::In,
            (b"optout", _) => asked.choice = TrackingMode::Out,
            (b"noloop", _) => asked.skips_own = true,
            (b"prefix", Some(prefix)) => {
                at += 1;
                prefixes.push(prefix.to_vec());
            }
            _ => return Err(Fault::SYNTAX),
        }
    }
    Ok((is_on, asked, prefixes))
}

/// Checks whether a client that tracks already can track like that.
fn check_switch(before: &ClientTracking, asked: &ClientTracking) -> Result<()> {
    if before.broadcasts != asked.broadcasts {
        return Err(Fault::line(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        ));
    }
    let switches = |one: &ClientTracking, other: &ClientTracking| {
        one.choice == TrackingMode::In && other.choice == TrackingMode::Out
    };
    if switches(before, asked) || switches(asked, before) {
        return Err(Fault::line(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        ));
    }
    Ok(())
}

/// Checks that no key begins with two prefixes of a client.
fn check_prefix<'p>(prefix: &[u8], others: impl Iterator<Item = &'p Vec<u8>>) -> Result<()> {
    for other in others {
        if other.starts_with(prefix) || prefix.starts_with(other) {
            let shown = String::from_utf8_lossy;
            return Err(Fault::new(format!(
                "ERR Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single \
                 client must not overlap.",
                shown(prefix),
                shown(other)
            )));
        }
    }
    Ok(())
}

/// Ends the tracking of the connection.
pub(crate) fn end(execution: &mut Execution<'_>) {
    execution.server.tracking.leave(&execution.session.client);
    execution.session.tracks = false;
}

/// `CLIENT CACHING`: whether what the next command reads is tracked.
///
/// # Errors
/// When that is said already for all commands.
pub(crate) fn caching(execution: &mut Execution<'_>) -> Result<()> {
    let mut follows = execution.session.client.follows.lock();
    let choice = follows.as_ref().map(|follows| follows.choice);
    if matches!(choice, None | Some(TrackingMode::All)) {
        return Err(Fault::line(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        ));
    }
    match (execution.arg(2).to_ascii_lowercase().as_slice(), choice) {
        (b"yes", Some(TrackingMode::In)) | (b"no", Some(TrackingMode::Out)) => {}
        (b"yes", _) => {
            return Err(Fault::line(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
        (b"no", _) => {
            return Err(Fault::line(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
        _ => return Err(Fault::SYNTAX),
    }
    if let Some(follows) = follows.as_mut() {
        follows.is_marked = true;
    }
    drop(follows);
    execution.reply.ok();
    Ok(())
}

/// `CLIENT GETREDIR`: which connection is told in the place of this one.
///
/// # Errors
/// None.
pub(crate) fn getredir(execution: &mut Execution<'_>) -> Result<()> {
    let follows = execution.session.client.follows.lock().clone();
    execution.reply.integer(redirect_of(follows.as_ref()));
    Ok(())
}

/// `CLIENT TRACKINGINFO`: how the connection tracks.
///
/// # Errors
/// None.
pub(crate) fn trackinginfo(execution: &mut Execution<'_>) -> Result<()> {
    let follows = execution.session.client.follows.lock().clone();
    let redirect = redirect_of(follows.as_ref());
    let mut flags = vec![if follows.is_some() { "on" } else { "off" }];
    let follows = follows.unwrap_or_default();
    let (choice, mark) = match follows.choice {
        TrackingMode::All => (None, None),
        TrackingMode::In => (Some("optin"), Some("caching-yes")),
        TrackingMode::Out => (Some("optout"), Some("caching-no")),
    };
    flags.extend(follows.broadcasts.then_some("bcast"));
    flags.extend(choice);
    flags.extend(mark.filter(|_| follows.is_marked));
    flags.extend(follows.skips_own.then_some("noloop"));
    flags.extend(follows.is_broken.then_some("broken_redirect"));
    let reply = &mut *execution.reply;
    reply.map(3);
    reply.bulk("flags");
    reply.set(flags.len());
    for flag in flags {
        reply.bulk(flag);
    }
    reply.bulk("redirect");
    reply.integer(redirect);
    reply.bulk("prefixes");
    reply.array(follows.prefixes.len());
    for prefix in &follows.prefixes {
        reply.bulk(prefix);
    }
    Ok(())
}
