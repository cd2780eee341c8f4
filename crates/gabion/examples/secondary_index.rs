//! People are found by their numbers and by where they live: an index that a transaction keeps.
//!
//! `cargo run --example secondary_index [DIRECTORY]`

use gabion::{Db, Error, Keyspace, key};

struct Registry {
    db: Db,
    /// City by the number of a person.
    people: Keyspace,
    /// Nothing, by city and number.
    by_city: Keyspace,
}

impl Registry {
    fn open(dir: &str) -> gabion::Result<Registry> {
        let db = Db::open(dir)?;
        let (people, by_city) = (db.keyspace("people")?, db.keyspace("people by city")?);
        Ok(Registry {
            db,
            people,
            by_city,
        })
    }

    /// A person lives in that city from now on.
    fn move_to(&self, person: u64, city: &str) -> gabion::Result<()> {
        self.db.transact(|transaction| {
            let number = key::of(&person);
            if let Some(before) = transaction.get(&self.people, &number)? {
                let before = String::from_utf8_lossy(&before);
                transaction.delete(&self.by_city, key::of(&(&*before, person)))?;
            }
            transaction.put(&self.people, &number, city)?;
            transaction.put(&self.by_city, key::of(&(city, person)), "")?;
            Ok::<_, Error>(())
        })
    }

    /// The numbers of the people in a city, ascending.
    fn living_in(&self, city: &str) -> gabion::Result<Vec<u64>> {
        let mut people = Vec::new();
        for pair in self.by_city.prefix(key::of(&(city,))) {
            let parts: Option<(String, u64)> = key::parse(&pair?.0);
            people.extend(parts.map(|(_, person)| person));
        }
        Ok(people)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "target/example-secondary-index".to_owned());
    let registry = Registry::open(&dir)?;
    for (person, city) in (0..300).zip(["bern", "bergen", "berlin"].iter().cycle()) {
        registry.move_to(person, city)?;
    }
    registry.move_to(7, "bern")?;
    for city in ["bergen", "berlin", "bern"] {
        let people = registry.living_in(city)?;
        println!(
            "{city}: {} people, the first is {}",
            people.len(),
            people[0]
        );
    }
    registry.db.close()?;
    Ok(())
}
