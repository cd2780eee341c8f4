//! Three nodes that agree on registers.
//!
//! Each node is a process, which listens to clients and to the other nodes:
//!
//! ```text
//! registers 1 node1 127.0.0.1:4001 127.0.0.1:4002 127.0.0.1:4003
//! registers 2 node2 127.0.0.1:4001 127.0.0.1:4002 127.0.0.1:4003
//! registers 3 node3 127.0.0.1:4001 127.0.0.1:4002 127.0.0.1:4003
//! ```
//!
//! A client sends a line and gets a line, such as `{"Value":null}`:
//!
//! ```text
//! {"Swap":{"name":"stone","value":"granite"}}
//! {"Get":{"name":"stone"}}
//! ```

mod app;
mod network;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use gabion_openraft::StateReader;
use openraft::error::{InitializeError, RaftError};
use openraft::{BasicNode, Config, LogIdOptionExt, Raft, SnapshotPolicy};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use app::{Answer, Ask, Registers, Status, Swap, Types, text};

type AnyResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone)]
struct Node {
    id: u64,
    raft: Raft<Types>,
    state: StateReader,
}

#[tokio::main]
async fn main() -> AnyResult<()> {
    let mut args = std::env::args().skip(1);
    let (Some(id), Some(dir)) = (args.next(), args.next()) else {
        return Err("usage: registers ID DIRECTORY ADDRESS...".into());
    };
    let id: u64 = id.parse()?;
    let members: BTreeMap<u64, BasicNode> = (1..).zip(args.map(BasicNode::new)).collect();
    let own = members.get(&id).ok_or("there is no address for the id")?;
    let node = start(id, Path::new(&dir), &members).await?;
    let listener = TcpListener::bind(&own.addr).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let node = node.clone();
        tokio::spawn(async move {
            // A connection that breaks is the other end's to make anew.
            let _ = node.serve(stream).await;
        });
    }
}

/// Starts the node: anew, or with what its directory has.
async fn start(id: u64, dir: &Path, members: &BTreeMap<u64, BasicNode>) -> AnyResult<Node> {
    let config = Config {
        heartbeat_interval: 100,
        election_timeout_min: 400,
        election_timeout_max: 800,
        install_snapshot_timeout: 2000,
        // So few that snapshots are built, sent and installed while one watches.
        snapshot_policy: SnapshotPolicy::LogsSinceLast(20),
        max_in_snapshot_log_to_keep: 5,
        ..Config::default()
    };
    std::fs::create_dir_all(dir)?;
    let db = gabion::Db::open(dir.join("store"))?;
    let snapshots = dir.join("snapshots");
    let (log, state_machine) = gabion_openraft::open::<Types, _>(&db, snapshots, Registers)?;
    let state = state_machine.reader();
    let config = Arc::new(config.validate()?);
    let raft = Raft::new(id, config, network::Network, log, state_machine).await?;
    match raft.initialize(members.clone()).await {
        // It is there since an earlier start, or another node was first.
        Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Node { id, raft, state })
}

impl Node {
    async fn serve(&self, stream: TcpStream) -> AnyResult<()> {
        stream.set_nodelay(true)?;
        let (from, mut to) = stream.into_split();
        let mut lines = BufReader::new(from).lines();
        while let Some(line) = lines.next_line().await? {
            let mut answer = match serde_json::from_str(&line)? {
                Ask::Append(rpc) => serde_json::to_vec(&self.raft.append_entries(rpc).await)?,
                Ask::Vote(rpc) => serde_json::to_vec(&self.raft.vote(rpc).await)?,
                Ask::Install(rpc) => serde_json::to_vec(&self.raft.install_snapshot(rpc).await)?,
                Ask::Swap(swap) => serde_json::to_vec(&self.swap(swap).await)?,
                Ask::Get { name } => serde_json::to_vec(&self.get(&name).await)?,
                Ask::Status => serde_json::to_vec(&Answer::Status(self.status()?))?,
            };
            answer.push(b'\n');
            to.write_all(&answer).await?;
        }
        Ok(())
    }

    async fn swap(&self, swap: Swap) -> Answer {
        if self.raft.current_leader().await != Some(self.id) {
            return Answer::NotLeader;
        }
        // Even one that is sent on to another leader may be in the log by now.
        match self.raft.client_write(swap).await {
            Ok(done) => Answer::Value(done.data),
            Err(error) => Answer::Unknown(error.to_string()),
        }
    }

    async fn get(&self, name: &str) -> Answer {
        if self.raft.ensure_linearizable().await.is_err() {
            return Answer::NotLeader;
        }
        match self.state.read(|state| state.get(name)) {
            Ok(value) => Answer::Value(value.map(|value| text(&value))),
            Err(error) => Answer::Unknown(error.to_string()),
        }
    }

    fn status(&self) -> AnyResult<Status> {
        let (keyspace, pairs) = self.state.read(|state| {
            let pairs: Result<Vec<_>, _> = state.iter().collect();
            (state.name().to_owned(), pairs)
        });
        let pairs = pairs?.into_iter();
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        Ok(Status {
            last: metrics.last_log_index,
            applied: metrics.last_applied.index(),
            purged: metrics.purged.index(),
            keyspace,
            registers: pairs
                .map(|(name, value)| (text(&name), text(&value)))
                .collect(),
        })
    }
}
