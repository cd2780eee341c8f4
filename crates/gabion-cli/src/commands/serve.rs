//! `serve`: a server that speaks Redis' protocol.

use gabion_server::Addresses;

use crate::args::serve::ServeArguments;
use crate::failure::Failure;
use crate::output::tell;

/// Serves until it is told to end.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    let config = arguments.config()?;
    let store = config.db.display().to_string();
    let ready = |addresses: &Addresses| {
        let tcp = addresses.tcp.iter().map(ToString::to_string);
        let tls = addresses
            .tls
            .iter()
            .map(|address| format!("{address} by TLS"));
        let all: Vec<String> = tcp.chain(tls).collect();
        tell(&format!("gabion: serving {store} on {}", all.join(", ")));
        if let Some(http) = addresses.http {
            tell(&format!("gabion: dashboard on http://{http}/"));
        }
    };
    gabion_server::serve(config, ready).map_err(|error| Failure::new(error.to_string()))
}
