//! Texts are found by their words: an index that follows the changes of a keyspace.
//!
//! Who writes texts knows nothing of the index. A consumer brings it up to date, in one process or
//! another, and goes on where it stopped.
//!
//! `cargo run --example word_index [DIRECTORY]`

use std::collections::BTreeSet;
use std::ops::Bound;

use gabion::{ChangeAction, Consumer, Db, Keyspace, WriteBatch, key};

const TEXTS: &str = "texts";

struct WordIndex {
    db: Db,
    /// Nothing, by word and name of the text.
    words: Keyspace,
    /// The texts as they were indexed, by their names.
    indexed: Keyspace,
    consumer: Consumer,
}

impl WordIndex {
    fn open(db: &Db) -> gabion::Result<WordIndex> {
        Ok(WordIndex {
            words: db.keyspace("words of texts")?,
            indexed: db.keyspace("indexed texts")?,
            consumer: db.consumer("word index")?,
            db: db.clone(),
        })
    }

    /// Takes over all that has changed since the last time, and returns how many texts did.
    fn catch_up(&self) -> gabion::Result<u64> {
        let mut changes = self.consumer.changes()?;
        let mut texts = 0;
        for change in &mut changes {
            for operation in change?.operations {
                // Its own changes are among them.
                if operation.name.as_deref() != Some(TEXTS) {
                    continue;
                }
                match &operation.action {
                    ChangeAction::Put { key, value, .. } => self.index(key, value)?,
                    ChangeAction::Delete { key } => self.index(key, b"")?,
                    ChangeAction::DeleteRange { from, to } => {
                        let end = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                        for pair in self.indexed.range::<&[u8]>((Bound::Included(&**from), end)) {
                            self.index(&pair?.0, b"")?;
                        }
                    }
                    _ => continue,
                }
                texts += 1;
            }
        }
        // What came to be indexed twice, had this not been reached, would be the same.
        self.consumer.acknowledge(changes.position())?;
        Ok(texts)
    }

    /// A text has these words from now on.
    fn index(&self, name: &[u8], text: &[u8]) -> gabion::Result<()> {
        let before = self.indexed.get(name)?.unwrap_or_default();
        let (old, new) = (words_of(&before), words_of(text));
        let mut batch = WriteBatch::new();
        for word in old.difference(&new) {
            batch.delete(&self.words, key::of(&(word.as_str(), name)))?;
        }
        for word in new.difference(&old) {
            batch.put(&self.words, key::of(&(word.as_str(), name)), "")?;
        }
        batch.put(&self.indexed, name, text)?;
        self.db.write(&batch)
    }

    /// The names of the texts with a word.
    fn find(&self, word: &str) -> gabion::Result<Vec<String>> {
        let mut names = Vec::new();
        for pair in self.words.prefix(key::of(&(word,))) {
            let parts: Option<(String, Vec<u8>)> = key::parse(&pair?.0);
            names.extend(parts.map(|(_, name)| String::from_utf8_lossy(&name).into_owned()));
        }
        Ok(names)
    }
}

fn words_of(text: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(text).to_lowercase();
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "target/example-word-index".to_owned());
    let db = Db::open(&dir)?;
    let index = WordIndex::open(&db)?;
    let texts = db.keyspace(TEXTS)?;
    texts.put("gabion", "A basket filled with stones")?;
    texts.put("cairn", "A heap of stones")?;
    texts.put("sieve", "A basket with holes")?;
    texts.delete("cairn")?;
    texts.put("sieve", "A bowl with holes")?;
    println!("{} texts changed", index.catch_up()?);
    for word in ["basket", "stones", "holes"] {
        println!("{word}: {}", index.find(word)?.join(", "));
    }
    drop(index);
    db.close()?;
    Ok(())
}
