//! Tables of formats in essays, to compare them with the types.

/// Rows of the table under the heading `name` of an essay in `text`: offset and bytes.
pub(crate) fn table(text: &str, name: &str) -> Vec<(u64, u64)> {
    let from = text.find(&format!("//! **{name}**")).expect("a heading");
    let table = text[from..]
        .lines()
        .skip_while(|line| !line.contains("|---"));
    table
        .skip(1)
        .take_while(|line| line.starts_with("//! |"))
        .map(|line| {
            let mut cells = line.split('|').skip(1).map(str::trim);
            let mut number = || cells.next().and_then(|cell| cell.parse().ok());
            (number().expect("an offset"), number().expect("a size"))
        })
        .collect()
}
