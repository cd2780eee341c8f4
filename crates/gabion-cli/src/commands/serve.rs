//! `serve`: a server that speaks Redis' protocol.

use crate::args::serve::ServeArguments;
use crate::failure::Failure;
use crate::output::tell;

/// Serves until it is told to end.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    let store = arguments.db.display();
    let ready = |addresses: &[std::net::SocketAddr]| {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        tell(&format!(
            "gabion: serving {store} on {}",
            addresses.join(", ")
        ));
    };
    gabion_server::serve(arguments.config(), ready).map_err(|error| Failure::new(error.to_string()))
}
