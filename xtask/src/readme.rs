//! The commands that README.md promises, marked so that the continuous integration runs exactly
//! what a reader is told to run.
//!
//! A mark is an HTML comment on a line of its own, `<!-- ci:first -->`; the command is the content
//! of the fenced block that follows it.

/// The marks that README.md must carry: the command that loads the example data, and the one that
/// runs the tests.
pub(crate) const MARKS: [&str; 2] = ["first", "test"];

/// The command in the fenced block after the mark `<!-- ci:<mark> -->` of a README's text, or a
/// sentence that says what is missing.
pub(crate) fn command(text: &str, mark: &str) -> Result<String, String> {
    let comment = format!("<!-- ci:{mark} -->");
    let mut lines = text.lines().map(str::trim);
    if !lines.any(|line| line == comment) {
        return Err(format!("has no line `{comment}`"));
    }
    let mut lines = lines.skip_while(|line| line.is_empty());
    if !lines.next().is_some_and(|line| line.starts_with("```")) {
        return Err(format!("no fenced block follows `{comment}`"));
    }
    let mut command = Vec::new();
    for line in lines {
        if line == "```" {
            command.retain(|line: &&str| !line.is_empty());
            if command.is_empty() {
                return Err(format!("the block after `{comment}` is empty"));
            }
            return Ok(command.join("\n"));
        }
        command.push(line);
    }
    Err(format!("the block after `{comment}` is not closed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "# Title\n\n<!-- ci:first -->\n```sh\ncargo run --release\n```\n\
                          words\n<!-- ci:test -->\n\n```\ncargo test\ncargo bench\n```\n";

    #[test]
    fn finds_each_marked_command() {
        assert_eq!(command(README, "first").unwrap(), "cargo run --release");
        assert_eq!(command(README, "test").unwrap(), "cargo test\ncargo bench");
    }

    #[test]
    fn says_what_is_missing() {
        for (text, why) in [
            ("words", "has no line"),
            ("<!-- ci:x -->\nwords\n```\ncargo\n```", "no fenced block"),
            ("<!-- ci:x -->\n```\n\n```", "is empty"),
            ("<!-- ci:x -->\n```\ncargo", "is not closed"),
        ] {
            let error = command(text, "x").unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
