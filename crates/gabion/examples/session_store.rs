//! Sessions that end by themselves, half an hour after they were used last.

use std::time::Duration;

use gabion::{Db, Keyspace, Result};

const IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// The user of a session, which goes on from now, if there is one.
fn use_session(sessions: &Keyspace, token: &str) -> Result<Option<String>> {
    let Some(user) = sessions.get(token)? else {
        return Ok(None);
    };
    sessions.expire(token, IDLE_MAX)?;
    Ok(Some(String::from_utf8_lossy(&user).into_owned()))
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or("sessions.gabion".into());
    let db = Db::open(path)?;
    let sessions = db.keyspace("sessions")?;

    sessions.put_expiring("token of alice", "alice", IDLE_MAX)?;
    sessions.put_expiring("token of bob", "bob", Duration::ZERO)?;

    println!(
        "alice's token is of {:?}",
        use_session(&sessions, "token of alice")?
    );
    println!(
        "bob's token is of {:?}",
        use_session(&sessions, "token of bob")?
    );
    let expires = sessions.expires_at("token of alice")?;
    println!("alice's session ends: {}", expires.is_some());

    // A trusted device stays.
    sessions.remove_expiry("token of alice")?;
    let expires = sessions.expires_at("token of alice")?;
    println!("it ends still: {}", expires.is_some());
    db.close()
}
