//! `cli`: a client of Redis' protocol.

mod editor;
mod show;
mod words;

use std::io::{self, BufRead, IsTerminal};
use std::os::unix::ffi::OsStrExt;

use gabion_server::{ClientTls, Connection, Reply, ServerAddress};

use crate::args::cli::CliArguments;
use crate::failure::Failure;
use crate::output::{Output, tell};
use show::Form;

/// Commands after which messages come until the end.
const LISTENERS: [&[u8]; 4] = [b"subscribe", b"psubscribe", b"ssubscribe", b"monitor"];

/// Sends what was given, or what is read.
pub(crate) fn run(arguments: &CliArguments, output: &mut Output) -> Result<(), Failure> {
    let form = match (arguments.json, arguments.raw || !io::stdout().is_terminal()) {
        (true, _) => Form::Json,
        (false, true) => Form::Raw,
        (false, false) => Form::Shown,
    };
    let mut session = Session::new(arguments, form);
    let has_failed = if !arguments.command.is_empty() {
        let words = arguments.command.iter();
        let words: Vec<Vec<u8>> = words.map(|word| word.as_bytes().to_vec()).collect();
        session.run(&words, output)?
    } else if io::stdin().is_terminal() {
        editor::run(&mut session, output)?;
        false
    } else {
        run_lines(&mut session, output)?
    };
    output.flush()?;
    match has_failed {
        true => Err(Failure::new("the server answered with an error")),
        false => Ok(()),
    }
}

/// Runs a command a line of standard input; true if one has failed.
fn run_lines(session: &mut Session<'_>, output: &mut Output) -> Result<bool, Failure> {
    let mut has_failed = false;
    for (index, line) in io::stdin().lock().split(b'\n').enumerate() {
        let number = index + 1;
        let wrong = |why: &str| Failure::new(format!("standard input, line {number}: {why}"));
        let line = line.map_err(|error| wrong(&error.to_string()))?;
        let words = words::split(&line).map_err(wrong)?;
        if !words.is_empty() {
            has_failed |= session.run(&words, output)?;
        }
    }
    Ok(has_failed)
}

/// A connection that is made when it is needed, and made again when it was lost.
struct Session<'a> {
    arguments: &'a CliArguments,
    form: Form,
    connection: Option<Connection>,
    /// The database that is selected.
    database: u32,
}

impl<'a> Session<'a> {
    fn new(arguments: &'a CliArguments, form: Form) -> Session<'a> {
        Session {
            arguments,
            form,
            connection: None,
            database: arguments.database.unwrap_or(0),
        }
    }

    /// Where it goes, in words.
    fn place(&self) -> String {
        let arguments = self.arguments;
        match &arguments.socket {
            Some(path) => path.display().to_string(),
            None => format!("{}:{}", arguments.host, arguments.port),
        }
    }

    fn connect(&self) -> Result<Connection, Failure> {
        let arguments = self.arguments;
        let tls = match &arguments.cacert {
            Some(authorities) if arguments.tls => Some(ClientTls {
                ca_cert_file: authorities.clone(),
                own: arguments.cert.clone().zip(arguments.key.clone()),
                name: arguments.sni.clone(),
            }),
            _ => None,
        };
        let target = match &arguments.socket {
            Some(path) => ServerAddress::Unix(path.clone()),
            None => ServerAddress::Tcp {
                host: arguments.host.clone(),
                port: arguments.port,
                tls,
            },
        };
        let lost = |error: io::Error| Failure::new(format!("{}: {error}", self.place()));
        let mut connection = Connection::open(&target).map_err(lost)?;
        for words in self.greeting() {
            if let Reply::Error(line) = connection.ask(&words, |_| {}).map_err(lost)? {
                return Err(Failure::new(format!("{}: {line}", self.place())));
            }
        }
        Ok(connection)
    }

    /// What is said before the first command.
    fn greeting(&self) -> Vec<Vec<String>> {
        let user = self.arguments.user.as_deref().unwrap_or("default");
        let mut greeting = Vec::new();
        let mut first: Vec<&str> = Vec::new();
        match (&self.arguments.pass, self.arguments.resp2) {
            (Some(pass), true) => first.extend(["auth", user, pass]),
            (Some(pass), false) => first.extend(["hello", "3", "auth", user, pass]),
            (None, true) => {}
            (None, false) => first.extend(["hello", "3"]),
        }
        if !first.is_empty() {
            greeting.push(first.into_iter().map(str::to_owned).collect());
        }
        if self.database != 0 {
            greeting.push(vec!["select".to_owned(), self.database.to_string()]);
        }
        greeting
    }

    /// Sends a command and prints its reply; true if that is an error.
    fn run(&mut self, words: &[Vec<u8>], output: &mut Output) -> Result<bool, Failure> {
        let (form, place) = (self.form, self.place());
        // It comes back when all went well.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let mut shown = Ok(());
        let mut print = |reply: &Reply| {
            if shown.is_ok() {
                shown = show::print(output, reply, form).and_then(|()| output.flush());
            }
        };
        let answered = connection.ask(words, |message| print(&message));
        let reply = answered.map_err(|error| Failure::new(format!("{place}: {error}")))?;
        print(&reply);
        let name = words.first().map(|word| word.to_ascii_lowercase());
        let is = |known: &[u8]| name.as_deref() == Some(known);
        if is(b"select") && reply == Reply::Simple("OK".to_owned()) {
            let number = words.get(1).and_then(|word| std::str::from_utf8(word).ok());
            let number = number.and_then(|word| word.parse().ok());
            self.database = number.unwrap_or(self.database);
        }
        let has_failed = matches!(reply, Reply::Error(_));
        if LISTENERS.into_iter().any(is) && !has_failed {
            while let Ok(message) = connection.read() {
                print(&message);
            }
        } else if !is(b"quit") && !is(b"shutdown") {
            self.connection = Some(connection);
        }
        shown?;
        Ok(has_failed)
    }
}

/// Says what has failed, and goes on.
fn say(failure: &Failure) {
    if let Failure::Usage(sentence) | Failure::Failed(sentence) = failure {
        tell(sentence);
    }
}
