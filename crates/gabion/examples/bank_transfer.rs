//! Money moves between accounts from several threads, and the sum stays what it was.
//!
//! `cargo run --example bank_transfer [DIRECTORY]`

use gabion::{Db, Error, Keyspace, Transaction};

const ACCOUNTS: u32 = 10;
const START: u64 = 100;

fn balance(transaction: &Transaction, accounts: &Keyspace, account: u32) -> gabion::Result<u64> {
    let value = transaction.get(accounts, account.to_le_bytes())?;
    let bytes = value.and_then(|value| value[..].try_into().ok());
    Ok(bytes.map_or(0, u64::from_le_bytes))
}

/// Moves money, if there is enough of it; false if not.
fn transfer(db: &Db, accounts: &Keyspace, from: u32, to: u32, amount: u64) -> gabion::Result<bool> {
    // Runs again if somebody else wrote one of the two accounts meanwhile.
    db.transact(|transaction| {
        let has = balance(transaction, accounts, from)?;
        let Some(left) = has.checked_sub(amount) else {
            return Ok::<_, Error>(false);
        };
        let gets = balance(transaction, accounts, to)? + amount;
        transaction.put(accounts, from.to_le_bytes(), left.to_le_bytes())?;
        transaction.put(accounts, to.to_le_bytes(), gets.to_le_bytes())?;
        Ok(true)
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "target/example-bank-transfer".to_owned());
    let db = Db::open(dir)?;
    let accounts = db.keyspace("accounts")?;
    for account in 0..ACCOUNTS {
        // Only if the account is new.
        accounts.compare_and_swap(account.to_le_bytes(), None, Some(&START.to_le_bytes()))?;
    }

    std::thread::scope(|scope| {
        let threads = (0..4_u32).map(|thread| {
            let (db, accounts) = (&db, &accounts);
            scope.spawn(move || -> gabion::Result<()> {
                for round in 0..250 {
                    let from = (thread + round) % ACCOUNTS;
                    let to = (from + 1 + round % 7) % ACCOUNTS;
                    transfer(db, accounts, from, to, u64::from(round % 40))?;
                }
                Ok(())
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;

    // All accounts at one moment.
    let transaction = db.begin()?;
    let balances = (0..ACCOUNTS).map(|account| balance(&transaction, &accounts, account));
    let sum: u64 = balances.sum::<gabion::Result<u64>>()?;
    println!("{ACCOUNTS} accounts hold {sum}");
    transaction.commit()?;
    db.close()?;
    Ok(())
}
