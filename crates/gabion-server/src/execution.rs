//! The execution of a command: the context that its handler gets.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::args::{Args, OwnedArgs};
use crate::blocking::{BlockedCommand, TimeoutReply};
use crate::clients::Client;
use crate::command::{Command, CommandTable};
use crate::events::EventClasses;
use crate::fault::{Fault, Result};
use crate::resp::reply::ReplyBuffer;
use crate::server::Server;
use crate::session::Session;
use crate::store::meta::{KeyRecord, RecordHead, SaveOutcome};
use crate::store::work::{KeyEvent, Work};

/// A command that runs. Its keys are locked, its reads and writes go through [`Execution::work`],
/// and take effect when the handler has returned without an error.
#[derive(Debug)]
pub(crate) struct Execution<'a> {
    /// What all connections share.
    pub(crate) server: &'a Arc<Server>,
    /// All commands.
    pub(crate) commands: &'static CommandTable,
    /// This one.
    pub(crate) command: &'static Command,
    /// What the connection remembers.
    pub(crate) session: &'a mut Session,
    /// Reads and writes.
    pub(crate) work: &'a mut Work,
    /// Where the reply goes.
    pub(crate) reply: &'a mut ReplyBuffer,
    /// The arguments, the name first.
    pub(crate) args: Args<'a>,
    /// Whether it runs inside of `EXEC`.
    pub(crate) is_inside: bool,
}

impl<'a> Execution<'a> {
    /// The same, for as long as a call takes that it is handed to.
    pub(crate) fn again(&mut self) -> Execution<'_> {
        Execution {
            session: &mut *self.session,
            work: &mut *self.work,
            reply: &mut *self.reply,
            ..*self
        }
    }

    /// The argument at `index`, which the arity has promised.
    pub(crate) fn arg(&self, index: usize) -> &'a [u8] {
        self.args.at(index)
    }

    /// The database of the store behind the selected one.
    pub(crate) fn space(&self) -> u16 {
        self.server.store.space(self.session.database)
    }

    /// The moment of the command, in milliseconds since 1970. Inside of `EXEC` it stands still.
    pub(crate) fn now_ms(&self) -> u64 {
        self.work.now_ms
    }

    /// The record of a key that is there.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn find(&mut self, key: &[u8]) -> Result<Option<KeyRecord>> {
        self.work.find(self.space(), key)
    }

    /// The same for a command that reads, which counts as a hit or a miss.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn look_up(&mut self, key: &[u8]) -> Result<Option<KeyRecord>> {
        let found = self.find(key)?;
        match found.is_some() {
            true => self.work.hits += 1,
            false => self.work.misses += 1,
        }
        Ok(found)
    }

    /// Gives a key a record: see [`Work::put`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn put(&mut self, key: &[u8], head: RecordHead, body: &[&[u8]]) -> Result<()> {
        if !self.work.put(self.space(), key, head, body)? {
            self.notify(EventClasses::NEW, "new", key);
        }
        Ok(())
    }

    /// Lets the command wait until one of the keys has something for it, or until a time has
    /// passed; `None` for ever. Inside of `EXEC` it does not wait.
    pub(crate) fn wait_for(
        &mut self,
        keys: &[&[u8]],
        timeout: Option<Duration>,
        on_timeout: TimeoutReply,
    ) {
        self.wait_as(self.args.to_owned(), keys, timeout, on_timeout);
    }

    /// The same, for a command that is tried again with other arguments.
    pub(crate) fn wait_as(
        &mut self,
        args: OwnedArgs,
        keys: &[&[u8]],
        timeout: Option<Duration>,
        on_timeout: TimeoutReply,
    ) {
        if self.is_inside {
            return on_timeout.write(self.reply);
        }
        if self.session.is_retry {
            self.session.still_waits = true;
            return;
        }
        let keys = keys.iter().map(|key| key.to_vec()).collect();
        let waiter = self.server.blocking.join(
            Arc::clone(&self.session.client),
            args,
            (self.session.database, self.reply.is_resp3),
            (keys, on_timeout),
        );
        self.session.wait = Some(BlockedCommand {
            waiter,
            until: timeout.map(|timeout| Instant::now() + timeout),
        });
        self.session.show();
    }

    /// Ends a connection; its own one after the reply.
    pub(crate) fn end_client(&mut self, client: &Client) {
        match client.id == self.session.client.id {
            true => self.session.is_closing = true,
            false => client.kill(),
        }
    }

    /// Whether a script has called it.
    pub(crate) fn is_of_script(&self) -> bool {
        self.is_inside && self.server.scripts.running.elapsed_ms().is_some()
    }

    /// Publishes that a collection was saved under a key that was not there.
    pub(crate) fn tell_new(&mut self, saved: SaveOutcome, key: &[u8]) {
        if saved == SaveOutcome::New {
            self.notify(EventClasses::NEW, "new", key);
        }
    }

    /// Publishes what happened to a collection that was saved, and that its key is gone if it is.
    pub(crate) fn tell(
        &mut self,
        saved: SaveOutcome,
        class: EventClasses,
        name: &'static str,
        key: &[u8],
    ) {
        if saved != SaveOutcome::Same {
            self.notify(class, name, key);
        }
        if saved == SaveOutcome::Removed {
            self.notify(EventClasses::GENERIC, "del", key);
        }
    }

    /// Removes a key; false if it was not there.
    ///
    /// # Errors
    /// As [`Work::remove`].
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<bool> {
        self.work.remove(self.space(), key)
    }

    /// Publishes, once the command has taken effect, that something happened to a key of the
    /// selected database.
    pub(crate) fn notify(&mut self, class: EventClasses, name: &'static str, key: &[u8]) {
        self.notify_in(self.session.database, class, name, key);
    }

    /// The same for a key of another database.
    pub(crate) fn notify_in(
        &mut self,
        database: usize,
        class: EventClasses,
        name: &'static str,
        key: &[u8],
    ) {
        if self.server.settings.events().has(class) {
            self.work.events.push(KeyEvent {
                class,
                name,
                database,
                key: key.to_vec(),
            });
        }
    }

    /// Removes all keys of databases. For commands that run alone.
    ///
    /// # Errors
    /// As [`Work::flush`].
    pub(crate) fn flush(&mut self, databases: &[usize]) -> Result<()> {
        for database in databases {
            let space = self.server.store.space(*database);
            if self.server.watch.is_used() {
                let mut found = Ok(());
                let work = &mut *self.work;
                self.server.watch.touch_all(|(of, key)| {
                    *of == space
                        && match work.find(space, key) {
                            Ok(meta) => meta.is_some(),
                            Err(error) => {
                                found = Err(error);
                                true
                            }
                        }
                });
                found?;
            }
            self.work.flush(space)?;
            for key in self.server.blocking.keys_of(*database) {
                self.work.touch(space, &key);
            }
        }
        Ok(())
    }

    /// The database that an argument names.
    ///
    /// # Errors
    /// What Redis says of a word, and of a number beyond all databases.
    pub(crate) fn database(&self, argument: &[u8]) -> Result<usize> {
        let number = crate::args::integer(argument).ok_or(Fault::NOT_AN_INTEGER)?;
        usize::try_from(number)
            .ok()
            .filter(|database| *database < self.server.store.databases())
            .ok_or(Fault::line("ERR DB index is out of range"))
    }

    /// An error for words that make no sense after a command with subcommands.
    pub(crate) fn wrong_arguments(&self) -> Fault {
        wrong_arguments(self.command, self.args)
    }
}

/// What Redis says of a number of arguments that does not fit.
pub(crate) fn wrong_arguments(command: &Command, args: Args<'_>) -> Fault {
    let first = String::from_utf8_lossy(args.at(0)).to_ascii_lowercase();
    let name = match first == command.name {
        true => first,
        false => format!("{first}|{}", command.name),
    };
    Fault::new(format!(
        "ERR wrong number of arguments for '{name}' command"
    ))
}
