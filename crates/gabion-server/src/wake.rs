//! Serves clients that wait for keys, after the keys have changed: see [`crate::blocking`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::acl::{self, AclContext};
use crate::blocking::{BlockedClient, BlockedState};
use crate::command::{CommandGroup, CommandTable};
use crate::dispatch::{find, nanos, note_slow, perform};
use crate::execution::Execution;
use crate::resp::reply::ReplyBuffer;
use crate::server::Server;
use crate::session::Session;
use crate::store::work::Work;
use crate::watch::StoredKey;

/// Serves whoever waits for keys that have changed, and then whoever waits for what that changes.
pub(crate) fn wake(
    server: &Arc<Server>,
    commands: &'static CommandTable,
    work: &mut Work,
    touched: Vec<StoredKey>,
) {
    let mut ready = VecDeque::from(touched);
    while let Some((space, key)) = ready.pop_front() {
        let Some(database) = server.store.database_of(space) else {
            continue;
        };
        // Where one of a family finds nothing, the next one of it need not look.
        let mut in_vain: Vec<CommandGroup> = Vec::new();
        for waiter in server.blocking.waiting(database, &key) {
            let Ok(command) = find(commands, waiter.args.borrow()) else {
                continue;
            };
            if in_vain.contains(&command.group) {
                continue;
            }
            match serve(server, commands, work, &waiter) {
                Some(touched) => ready.extend(touched),
                None if matches!(command.group, CommandGroup::List | CommandGroup::SortedSet) => {
                    in_vain.push(command.group);
                }
                None => {}
            }
        }
    }
}

/// Runs the command of a waiter; returns the keys that it has changed, or `None` if it goes on
/// waiting.
fn serve(
    server: &Arc<Server>,
    commands: &'static CommandTable,
    work: &mut Work,
    waiter: &Arc<BlockedClient>,
) -> Option<Vec<StoredKey>> {
    let mut state = waiter.state.lock();
    if !matches!(*state, BlockedState::Waiting) {
        return Some(Vec::new());
    }
    let args = waiter.args.borrow();
    let mut session = Session::new(Arc::clone(&waiter.client), true);
    session.database = waiter.database;
    session.is_retry = true;
    let mut reply = ReplyBuffer {
        is_resp3: waiter.is_resp3,
        ..ReplyBuffer::default()
    };
    let began = Instant::now();
    let command = find(commands, args);
    let performed = command.clone().and_then(|command| {
        acl::check(
            server,
            commands,
            &session,
            (command, args),
            AclContext::TopLevel,
        )?;
        perform(Execution {
            server,
            commands,
            command,
            session: &mut session,
            work,
            reply: &mut reply,
            args,
            is_inside: false,
        })
    });
    if session.still_waits {
        return None;
    }
    if let Ok(command) = command {
        let nanos = nanos(began.elapsed());
        server.calls.add_waited(command.number, nanos);
        if performed.is_err() {
            server.calls.add_failed(command.number);
        }
        note_slow(server, &waiter.client, args, nanos / 1000);
    }
    let touched = performed.unwrap_or_else(|fault| {
        server.count_error(&fault.text());
        reply.out.clear();
        reply.error(&fault.text());
        Vec::new()
    });
    *state = BlockedState::Served(reply.out);
    drop(state);
    server.blocking.leave(waiter);
    waiter.served.notify_one();
    // Behind the reply, if the waiter itself follows what it has changed.
    server.tell_followers(&touched, Some(waiter.client.id));
    Some(touched)
}
