//! A connection: reads requests, runs them, sends replies.
//!
//! # Idea
//! All requests that have come are run back to back, on the connection's own task, and their
//! replies leave in one write. A request takes a microsecond or a few, so handing it to another
//! thread would cost more than it does. Three things may take long, and keep nobody else waiting:
//!
//! - A sync of `appendfsync always`: replies wait for it here, as a task ([`crate::sync`]).
//! - A command that reads many keys says so in the table (`LONG`), and runs while the other tasks
//!   of its thread are handed over.
//! - A store that holds writers back: when a round has taken longer than [`SLOW`], all connections
//!   hand over the other tasks of their threads before they run commands, for [`SLOW_FOR_MS`].
//!
//! # Invariants
//! - I1. Replies that wait take [`OUT_BYTES`] and one reply at most: then they are written before
//!   the next request runs. A client that does not read stops its own requests only.
//! - I2. What others send it ([`Client::send`]) goes behind whole replies.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::clients::{Client, now_ms};
use crate::command::CommandTable;
use crate::config::AppendFsync;
use crate::dispatch;
use crate::pubsub::SubscriptionKind;
use crate::resp::parse::{Parsed, RequestLimits, RequestParser};
use crate::resp::reply::ReplyBuffer;
use crate::server::{Server, count, counted};
use crate::session::Session;
use crate::store::work::Work;

/// Bytes of replies after which they are written.
const OUT_BYTES: usize = 64 << 10;

/// Room for what comes, at first and at most.
const IN_BYTES: usize = 4 << 10;
const IN_BYTES_MAX: usize = 64 << 10;

/// The longest request, with all its arguments, as Redis has it: 1 GiB.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// A round of commands that takes longer shows that the store holds writers back.
const SLOW: Duration = Duration::from_millis(5);

/// How long it is then taken to be so, in milliseconds.
const SLOW_FOR_MS: u64 = 100;

/// Memory of a buffer that is kept, in bytes.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// How long a client has to take the end of the connection.
const GOODBYE: Duration = Duration::from_millis(100);

/// How long a pause lasts at least once it was ended early.
const PAUSE_STEP: Duration = Duration::from_millis(5);

/// How a round of commands has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// At least so many bytes are missing.
    Waits(usize),
    /// There is more, but replies must be written first.
    Full,
    /// The last command waits for a key.
    Blocked,
    /// The next command waits for the end of a pause.
    Paused(Duration),
    /// The connection ends.
    Ends,
}

/// A connection.
struct Connection<S> {
    server: Arc<Server>,
    commands: &'static CommandTable,
    stream: S,
    input: BytesMut,
    room: usize,
    parser: RequestParser,
    reply: ReplyBuffer,
    session: Session,
    work: Work,
}

/// Serves a client until it goes, or is to go.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    server: Arc<Server>,
    commands: &'static CommandTable,
    stream: S,
    client: Arc<Client>,
) {
    let is_open = server.users.default.rights().is_open();
    let mut connection = Connection {
        commands,
        stream,
        input: BytesMut::new(),
        room: IN_BYTES,
        parser: RequestParser::default(),
        reply: ReplyBuffer::default(),
        session: Session::new(Arc::clone(&client), is_open),
        work: Work::new(Arc::clone(&server.store)),
        server,
    };
    // A client that goes away in the middle is no failure of the server.
    let _ = connection.run().await;
    // TLS says goodbye, so that the client knows that nothing is missing.
    let _ = tokio::time::timeout(GOODBYE, connection.stream.shutdown()).await;
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            // What was sent before a request came is read before its reply.
            self.session.client.take_messages(&mut self.reply.out);
            let changes = self.work.commands;
            let round = self.round();
            if self.work.commands != changes {
                self.tell(now_ms());
            }
            self.session.client.take_messages(&mut self.reply.out);
            self.write().await?;
            match round {
                Round::Ends => return Ok(()),
                Round::Full => {}
                Round::Paused(left) => {
                    if self.session.client.is_killed() || self.server.is_stopping() {
                        return Ok(());
                    }
                    tokio::time::sleep(left.min(PAUSE_STEP)).await;
                }
                Round::Blocked => {
                    if !self.wait().await? {
                        return Ok(());
                    }
                }
                Round::Waits(missing) => {
                    if self.session.client.is_killed() || !self.read(missing).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Runs what has come, giving the other tasks of the thread away if the store is slow.
    fn round(&mut self) -> Round {
        if self.input.is_empty() {
            return Round::Waits(1);
        }
        let began = Instant::now();
        self.session.began = began;
        let client = &self.session.client;
        let (waiting, room) = (self.input.len(), self.input.capacity());
        // ORDER: Relaxed (both); a list shows them.
        client.input_bytes.store(waiting, Ordering::Relaxed);
        client.input_room.store(room - waiting, Ordering::Relaxed);
        let since_start = began.duration_since(self.server.started).as_millis();
        let since_start = u64::try_from(since_start).unwrap_or(u64::MAX);
        let round = match since_start < counted(&self.server.slow_until_ms) {
            true => tokio::task::block_in_place(|| self.run_commands()),
            false => self.run_commands(),
        };
        if began.elapsed() > SLOW {
            // ORDER: Relaxed; a hint.
            let until = &self.server.slow_until_ms;
            until.fetch_max(since_start + SLOW_FOR_MS, Ordering::Relaxed);
        }
        round
    }

    fn run_commands(&mut self) -> Round {
        let mut start = 0;
        let round = loop {
            let limits = RequestLimits {
                bulk_bytes_max: self.server.settings.bulk_bytes_max(),
                is_unknown: !self.session.is_authenticated,
            };
            let bytes = self.input.get(start..).unwrap_or_default();
            match self.parser.parse(bytes, limits) {
                Ok(Parsed::Incomplete(missing)) => break Round::Waits(missing),
                Ok(Parsed::Request(length)) => {
                    let args = self.parser.args(bytes);
                    if let Some(left) = self.server.pause.left()
                        && dispatch::is_paused(&self.server, self.commands, &self.session, args)
                    {
                        // The request stays where it is until its turn comes.
                        self.parser.reset();
                        break Round::Paused(left);
                    }
                    if args.len() > 0 {
                        dispatch::run(
                            &self.server,
                            self.commands,
                            &mut self.session,
                            &mut self.work,
                            &mut self.reply,
                            args,
                        );
                    }
                    self.parser.reset();
                    start += length;
                }
                Err(malformed) => {
                    self.reply.error(&format!("ERR {malformed}"));
                    break Round::Ends;
                }
            }
            if self.session.is_closing || self.session.client.is_killed() {
                break Round::Ends;
            }
            if self.session.wait.is_some() {
                break Round::Blocked;
            }
            if self.reply.out.len() >= OUT_BYTES {
                break Round::Full;
            }
        };
        self.input.advance(start);
        round
    }

    /// Waits until the command that waits for a key is served, has waited long enough, or the
    /// client goes; false if it has gone.
    async fn wait(&mut self) -> io::Result<bool> {
        let Some(wait) = &self.session.wait else {
            return Ok(true);
        };
        let (waiter, until) = (Arc::clone(&wait.waiter), wait.until);
        let client = Arc::clone(&self.session.client);
        loop {
            if let Some(reply) = waiter.take_reply() {
                self.reply.out.extend_from_slice(&reply);
                // Who has served it may not have synced yet.
                self.work.has_committed = true;
                self.session.wait = None;
                self.session.show();
                return Ok(true);
            }
            let end = async move {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let has_room = self.input.len() < IN_BYTES_MAX;
            self.input.reserve(IN_BYTES);
            tokio::select! {
                biased;
                () = waiter.served.notified() => {}
                () = client.called() => {
                    if client.is_killed() {
                        return Ok(false);
                    }
                    client.take_messages(&mut self.reply.out);
                    self.write().await?;
                }
                () = end => {
                    if self.server.blocking.end(&waiter, waiter.in_vain())
                        && let Ok(command) = dispatch::find(self.commands, waiter.args.borrow())
                    {
                        self.server.calls.add_waited(command.number, 0);
                    }
                }
                read = self.stream.read_buf(&mut self.input), if has_room => {
                    if read? == 0 {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Adds to the server's counts what the round has done.
    fn tell(&mut self, now_ms: u64) {
        self.session.calling.add_up(&self.server.calls);
        let counts = &self.server.counts;
        for (place, by) in [
            (&counts.commands, std::mem::take(&mut self.work.commands)),
            (&counts.hits, std::mem::take(&mut self.work.hits)),
            (&counts.misses, std::mem::take(&mut self.work.misses)),
        ] {
            if by > 0 {
                count(place, by);
            }
        }
        // ORDER: Relaxed; a list shows it.
        self.session
            .client
            .active_ms
            .store(now_ms, Ordering::Relaxed);
    }

    /// Sends the replies, once what they say is as safe as it should be.
    async fn write(&mut self) -> io::Result<()> {
        if self.reply.out.is_empty() {
            return Ok(());
        }
        if self.work.has_committed && self.server.settings.fsync() == AppendFsync::Always {
            self.work.has_committed = false;
            let began = Instant::now();
            let synced = self.server.syncer.synced().await;
            let server = &self.server;
            let waited = dispatch::nanos(began.elapsed());
            server
                .spikes
                .note(&server.settings, "aof-fsync-always", waited);
            if let Err(error) = synced {
                // What was acknowledged would not be safe: say nothing but that.
                self.reply.out.clear();
                let line = format!("MISCONF the store could not sync: {error}");
                self.reply.error(&line);
                self.session.is_closing = true;
            }
        }
        count(&self.server.counts.bytes_out, self.reply.out.len() as u64);
        let client = Arc::clone(&self.session.client);
        {
            let (stream, out) = (&mut self.stream, &self.reply.out);
            let mut written = pin!(async {
                stream.write_all(out).await?;
                // TLS has records of its own that wait to be written.
                stream.flush().await
            });
            loop {
                tokio::select! {
                    biased;
                    result = &mut written => {
                        result?;
                        break;
                    }
                    () = client.called() => {
                        if client.is_killed() && !self.session.is_closing {
                            return Err(io::ErrorKind::ConnectionAborted.into());
                        }
                    }
                }
            }
        }
        self.reply.out.clear();
        if self.reply.out.capacity() > KEPT_BYTES_MAX {
            self.reply.out = BytesMut::new();
        }
        Ok(())
    }

    /// Waits for bytes, for mail, or for the end; false at the end.
    async fn read(&mut self, missing: usize) -> io::Result<bool> {
        if self.input.len() > REQUEST_BYTES_MAX {
            return Ok(false);
        }
        // A long argument gets its room as it comes, whatever length it states.
        let room = missing
            .min(self.input.len().max(IN_BYTES_MAX))
            .max(self.room);
        self.input.reserve(room);
        let timeout = self.server.settings.timeout_seconds();
        let is_subscribed = self.session.is_subscribed();
        let silence = async move {
            match timeout {
                0 => std::future::pending().await,
                _ if is_subscribed => std::future::pending().await,
                seconds => tokio::time::sleep(Duration::from_secs(seconds)).await,
            }
        };
        tokio::select! {
            biased;
            read = self.stream.read_buf(&mut self.input) => {
                let length = read?;
                count(&self.server.counts.bytes_in, length as u64);
                if length >= self.room {
                    self.room = (self.room * 2).min(IN_BYTES_MAX);
                }
                Ok(length > 0)
            }
            () = self.session.client.called() => Ok(!self.session.client.is_killed()),
            () = silence => Ok(false),
        }
    }
}

/// Leaves nothing behind, however the connection has ended.
impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        let id = self.session.client.id;
        if let Some(wait) = self.session.wait.take() {
            self.server.blocking.end(&wait.waiter, BytesMut::new());
        }
        self.server
            .watch
            .end(std::mem::take(&mut self.session.watched));
        for (topic, names) in [
            (SubscriptionKind::Channel, &self.session.channels),
            (SubscriptionKind::Pattern, &self.session.patterns),
            (SubscriptionKind::Shard, &self.session.shard_channels),
        ] {
            for name in names {
                self.server.pubsub.remove(topic, name, id);
            }
        }
        self.server.tracking.leave(&self.session.client);
        self.server.monitor.leave(id);
        self.server.clients.remove(id);
    }
}
