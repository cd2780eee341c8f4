//! Counts page views from several threads, without a read or a conflict for each of them.

use gabion::{AddI64, Db, KeyspaceOptions, Result, WriteBatch};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or("counters.gabion".into());
    let db = Db::open(path)?;
    let views = db.keyspace_with("views", &KeyspaceOptions::default().merge(AddI64))?;

    let before = count(&views, "/")?;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    views
                        .merge("/", 1i64.to_le_bytes())
                        .expect("the store takes writes");
                }
            });
        }
    });
    println!("/ was viewed {} times more", count(&views, "/")? - before);

    // With other writes, in one step.
    let mut batch = WriteBatch::new();
    batch.merge(&views, "/about", 1i64.to_le_bytes())?;
    batch.put(db.default_keyspace(), "last page", "/about")?;
    db.write(batch)?;

    // Somebody reads: what was merged is added up then, or was before.
    let mut transaction = db.begin()?;
    transaction.merge(&views, "/about", 9i64.to_le_bytes())?;
    let about = transaction.get(&views, "/about")?;
    transaction.commit()?;
    println!("/about was viewed: {}", about.is_some());
    db.close()
}

fn count(views: &gabion::Keyspace, page: &str) -> Result<i64> {
    let value = views.get(page)?;
    let number = value.and_then(|value| Some(i64::from_le_bytes(*value.first_chunk()?)));
    Ok(number.unwrap_or(0))
}
