//! How nodes ask each other: lines of JSON over TCP.

use std::error::Error;
use std::io;
use std::time::Duration;

use openraft::BasicNode;
use openraft::error::{
    InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::app::{Ask, Types};

type Failure<E> = RPCError<u64, BasicNode, E>;

pub(crate) struct Network;

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        Peer {
            id: target,
            address: node.addr.clone(),
            connection: None,
        }
    }
}

/// Another node.
pub(crate) struct Peer {
    id: u64,
    address: String,
    connection: Option<BufReader<TcpStream>>,
}

impl Peer {
    /// Asks the node. openraft may drop a call that takes too long, and with it the connection, on
    /// which an answer may come that nobody waits for.
    async fn call<T, E>(&mut self, ask: Ask) -> Result<T, Failure<E>>
    where
        T: DeserializeOwned,
        E: Error + DeserializeOwned,
    {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(&self.address).await;
                let stream =
                    stream.map_err(|error| Failure::<E>::from(Unreachable::new(&error)))?;
                BufReader::new(stream)
            }
        };
        let answer: io::Result<Result<T, E>> = exchange(&mut connection, &ask).await;
        let answer = answer.map_err(|error| Failure::<E>::from(NetworkError::new(&error)))?;
        self.connection = Some(connection);
        answer.map_err(|error| RemoteError::new(self.id, error).into())
    }
}

async fn exchange<T: DeserializeOwned>(
    connection: &mut BufReader<TcpStream>,
    ask: &Ask,
) -> io::Result<T> {
    let mut line = serde_json::to_vec(ask)?;
    line.push(b'\n');
    connection.get_mut().set_nodelay(true)?;
    connection.get_mut().write_all(&line).await?;
    line.clear();
    connection.read_until(b'\n', &mut line).await?;
    Ok(serde_json::from_slice(&line)?)
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failure<RaftError<u64>>> {
        self.call(Ask::Append(rpc)).await
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failure<RaftError<u64, InstallSnapshotError>>> {
        self.call(Ask::Install(rpc)).await
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, Failure<RaftError<u64>>> {
        self.call(Ask::Vote(rpc)).await
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(Duration::from_millis(100)))
    }
}
