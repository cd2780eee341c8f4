//! The numbers of a figure, by name.
//!
//! A [`Table`] has axes, such as an index and a workload, and columns, each of which says what is
//! counted in which unit. A [`Row`] has a coordinate on each axis and a number in each column. All
//! else is made of rows: the text that is printed, the JSON that is kept, the curves, and the
//! claims, which name a number by a [`Cell`]. So a heading can change, and no claim with it.

use std::borrow::Cow;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::Error;

type Text = Cow<'static, str>;

/// Rows with the same axes and columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What tells it from other tables of the figure; empty if there is no other.
    pub name: Text,
    /// What all of its numbers have in common.
    pub about: Text,
    /// What the coordinates of a row are.
    pub axes: Vec<Text>,
    /// So many of the axes, from the first on, are shown as headings above rows.
    pub headings: usize,
    /// What the numbers of a row are.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
    /// What the paper says of them, for a reader.
    pub notes: Vec<Text>,
}

/// What a number of each row is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Columns next to each other with the same words here belong together.
    pub group: Text,
    /// The name, which no other column of the group has.
    pub name: Text,
    /// What is counted; empty if the table says it of all columns.
    pub unit: Text,
    /// Digits that are shown behind the point.
    pub decimals: usize,
    /// Numbers are shown with their sign.
    pub is_signed: bool,
}

/// Numbers in one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// A coordinate for each axis.
    pub at: Vec<String>,
    /// A number for each column, where there is one.
    pub values: Vec<Option<f64>>,
    /// What is to be said of this row, such as why it has no number.
    pub note: String,
}

/// The name of a number in a figure.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The table.
    pub table: &'static str,
    /// The row, by all of its coordinates.
    pub at: &'static [&'static str],
    /// The column, behind its group if it has one.
    pub column: &'static str,
}

/// The name of a number in a figure that has one table.
pub(crate) const fn cell(at: &'static [&'static str], column: &'static str) -> Cell {
    Cell {
        table: "",
        at,
        column,
    }
}

/// A column of a table.
pub(crate) const fn column(name: &'static str, unit: &'static str, decimals: usize) -> Column {
    Column {
        group: Cow::Borrowed(""),
        name: Cow::Borrowed(name),
        unit: Cow::Borrowed(unit),
        decimals,
        is_signed: false,
    }
}

impl Column {
    pub(crate) const fn signed(mut self) -> Column {
        self.is_signed = true;
        self
    }

    /// The same columns for each of some groups.
    pub(crate) fn grouped(groups: &[&'static str], columns: &[Column]) -> Vec<Column> {
        let of_group = |group: &&'static str| {
            let group = Cow::Borrowed(*group);
            columns.iter().map(move |column| Column {
                group: group.clone(),
                ..column.clone()
            })
        };
        groups.iter().flat_map(of_group).collect()
    }

    fn is_named(&self, name: &str) -> bool {
        match &*self.group {
            "" => self.name == name,
            group => {
                let rest = name
                    .strip_prefix(group)
                    .and_then(|rest| rest.strip_prefix(' '));
                rest == Some(&*self.name)
            }
        }
    }

    fn text(&self, value: Option<f64>) -> String {
        let decimals = self.decimals;
        match value {
            Some(value) if self.is_signed => format!("{value:+.decimals$}"),
            Some(value) => format!("{value:.decimals$}"),
            None => "-".to_owned(),
        }
    }
}

impl Table {
    /// An empty table.
    pub(crate) fn new(
        about: impl Into<Text>,
        axes: &[&'static str],
        columns: impl Into<Vec<Column>>,
    ) -> Table {
        Table {
            name: Cow::Borrowed(""),
            about: about.into(),
            axes: axes.iter().map(|axis| Cow::Borrowed(*axis)).collect(),
            headings: 0,
            columns: columns.into(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn named(mut self, name: &'static str) -> Table {
        self.name = Cow::Borrowed(name);
        self
    }

    pub(crate) fn headings(mut self, headings: usize) -> Table {
        self.headings = headings;
        self
    }

    pub(crate) fn note(mut self, note: impl Into<Text>) -> Table {
        self.notes.push(note.into());
        self
    }

    /// Adds a row; a number that is none is not there.
    pub(crate) fn row<V: Into<Option<f64>>>(
        &mut self,
        at: &[&str],
        values: impl IntoIterator<Item = V>,
    ) {
        self.row_with(at, values, String::new());
    }

    /// Adds a row of which something is to be said.
    pub(crate) fn row_with<V: Into<Option<f64>>>(
        &mut self,
        at: &[&str],
        values: impl IntoIterator<Item = V>,
        note: String,
    ) {
        let values = values.into_iter().map(Into::into);
        let values: Vec<_> = values
            .map(|value| value.filter(|it| it.is_finite()))
            .collect();
        assert_eq!(at.len(), self.axes.len(), "{at:?}");
        assert_eq!(values.len(), self.columns.len(), "{at:?}");
        let at = at.iter().map(|place| (*place).to_owned()).collect();
        self.rows.push(Row { at, values, note });
    }

    /// The number of a row in a column, if there is one.
    pub(crate) fn value(&self, row: &Row, column: &str) -> Option<f64> {
        let place = self.columns.iter().position(|one| one.is_named(column))?;
        row.values[place]
    }

    /// The numbers of a column with their rows, where there are some.
    pub(crate) fn numbers(&self, column: &str) -> impl Iterator<Item = (&Row, f64)> {
        let number = move |row| Some((row, self.value(row, column)?));
        self.rows.iter().filter_map(number)
    }

    /// What is printed.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.about.is_empty() {
            text += &format!("{}\n", self.about);
        }
        let indent = if self.headings > 0 { "  " } else { "" };
        let widths = self.widths();
        self.write_head(&widths, indent, &mut text);
        let mut heading: &[String] = &[];
        for row in &self.rows {
            let (above, labels) = row.at.split_at(self.headings);
            if above != heading {
                text += &format!("{}:\n", above.join(", "));
                heading = above;
            }
            let values = self.columns.iter().zip(&row.values);
            let values = values.map(|(column, value)| column.text(*value));
            let mut line = line(&widths, labels.len(), labels.iter().cloned().chain(values));
            if !row.note.is_empty() {
                line += &format!("   {}", row.note);
            }
            text += &format!("{indent}{}\n", line.trim_end());
        }
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        text
    }

    /// The lines above the rows: groups, names and units, as far as there are some.
    fn write_head(&self, widths: &[usize], indent: &str, text: &mut String) {
        let labels = self.axes.len() - self.headings;
        let groups = self.groups();
        if groups.iter().any(|(group, _)| !group.is_empty()) {
            let mut line = " ".repeat(span(&widths[..labels]));
            let mut at = labels;
            for (group, count) in groups {
                let width = span(&widths[at..at + count]);
                let _ = write!(line, "  {group:>width$}");
                at += count;
            }
            *text += &format!("{indent}{}\n", line.trim_end());
        }
        let axes = self.axes[self.headings..].iter();
        let names = axes.chain(self.columns.iter().map(|column| &column.name));
        let mut write = |words: Vec<String>| {
            if words.iter().any(|word| !word.is_empty()) {
                *text += &format!("{indent}{}\n", line(widths, labels, words).trim_end());
            }
        };
        write(names.map(|name| name.to_string()).collect());
        let units = self.columns.iter().map(|column| column.unit.to_string());
        write(
            vec![String::new(); labels]
                .into_iter()
                .chain(units)
                .collect(),
        );
    }

    /// Groups next to each other, with the number of their columns.
    fn groups(&self) -> Vec<(&str, usize)> {
        let mut groups: Vec<(&str, usize)> = Vec::new();
        for column in &self.columns {
            match groups.last_mut() {
                Some((group, count)) if *group == column.group => *count += 1,
                _ => groups.push((&column.group, 1)),
            }
        }
        groups
    }

    /// The widths of labels and columns.
    fn widths(&self) -> Vec<usize> {
        let length = |text: &str| text.chars().count();
        let labels = (self.headings..self.axes.len()).map(|axis| {
            let places = self.rows.iter().map(|row| length(&row.at[axis]));
            places.chain([length(&self.axes[axis])]).max().unwrap_or(0)
        });
        let columns = self.columns.iter().enumerate().map(|(at, column)| {
            let values = self
                .rows
                .iter()
                .map(|row| length(&column.text(row.values[at])));
            let head = [length(&column.name), length(&column.unit)];
            values.chain(head).max().unwrap_or(0)
        });
        let mut widths: Vec<usize> = labels.chain(columns).collect();
        let mut at = self.axes.len() - self.headings;
        for (group, count) in self.groups() {
            let missing = length(group).saturating_sub(span(&widths[at..at + count]));
            widths[at] += missing;
            at += count;
        }
        widths
    }
}

impl Cell {
    /// Its row among those of a figure, and its number, if the row has one.
    ///
    /// # Errors
    /// [`Error::Meaningless`] if there is no such row or column.
    pub(crate) fn find(self, tables: &[Table]) -> Result<(&Row, Option<f64>), Error> {
        let missing = |what: String| {
            let table = match self.table {
                "" => "the figure".to_owned(),
                name => format!("the figure's table of {name}"),
            };
            Error::Meaningless(format!("{table} has no {what}"))
        };
        let mut tables = tables.iter().filter(|table| table.name == self.table);
        let Some(table) = tables.next() else {
            return Err(missing("rows".to_owned()));
        };
        let row = table.rows.iter().find(|row| row.at == self.at);
        let row = row.ok_or_else(|| missing(format!("row of {}", self.at.join(", "))))?;
        let mut columns = table.columns.iter();
        let place = columns.position(|column| column.is_named(self.column));
        let place = place.ok_or_else(|| missing(format!("column {}", self.column)))?;
        Ok((row, row.values[place]))
    }
}

/// The width of columns with the spaces between them.
fn span(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

/// Cells in their columns: labels begin where these do, numbers end where these do.
fn line(widths: &[usize], labels: usize, cells: impl IntoIterator<Item = String>) -> String {
    let mut line = String::new();
    for (at, (cell, width)) in cells.into_iter().zip(widths).enumerate() {
        let gap = if at > 0 { "  " } else { "" };
        let _ = match at < labels {
            true => write!(line, "{gap}{cell:<width$}"),
            false => write!(line, "{gap}{cell:>width$}"),
        };
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = [column("paper", "", 1), column("apart", "%", 0).signed()];
        let columns = Column::grouped(&["load", "media writes"], &columns);
        let mut table = Table::new("ten of each", &["keys", "index"], columns);
        table.row(&["words", "CCEH"], [1.0, 5.0, f64::NAN, -30.0]);
        table.row(
            &["words", "P-CLHT"],
            [Some(12.25), None, Some(0.5), Some(0.0)],
        );
        let note = "without writes".to_owned();
        table.row_with(&["strings", "CCEH"], [1.0, 2.0, 3.0, 4.0], note);
        table.headings(1).note("paper: less")
    }

    #[test]
    fn a_table_is_printed_as_its_rows_are() {
        let text = "\
ten of each
                  load  media writes
  index   paper  apart  paper  apart
                     %             %
words:
  CCEH      1.0     +5      -    -30
  P-CLHT   12.2      -    0.5     +0
strings:
  CCEH      1.0     +2    3.0     +4   without writes
paper: less
";
        assert_eq!(table().text(), text);
    }

    #[test]
    fn a_number_is_found_by_its_name_and_by_no_other() {
        let tables = [table().named("first"), Table::new("", &["index"], [])];
        let find = |table, at, column| {
            let cell = Cell { table, at, column };
            cell.find(&tables).map_err(|error| error.to_string())
        };
        let (_, number) = find("first", &["words", "P-CLHT"], "load paper").unwrap();
        assert_eq!(number, Some(12.25));
        let (row, number) = find("first", &["strings", "CCEH"], "media writes apart").unwrap();
        assert_eq!((&*row.note, number), ("without writes", Some(4.0)));
        let (_, number) = find("first", &["words", "CCEH"], "media writes paper").unwrap();
        assert_eq!(number, None);
        for (table, at, column, sentence) in [
            (
                "second",
                &["words", "CCEH"][..],
                "load paper",
                "table of second has no rows",
            ),
            ("first", &["words"], "load paper", "no row of words"),
            (
                "first",
                &["words", "P-CL"],
                "load paper",
                "no row of words, P-CL",
            ),
            ("first", &["words", "CCEH"], "paper", "no column paper"),
            (
                "first",
                &["words", "CCEH"],
                "loadpaper",
                "no column loadpaper",
            ),
            ("", &["CCEH"], "load", "the figure has no row of CCEH"),
        ] {
            let told = find(table, at, column).unwrap_err();
            assert!(told.contains(sentence), "{told}");
        }
    }

    #[test]
    fn rows_are_the_same_after_they_were_kept() {
        let text = serde_json::to_string(&table()).unwrap();
        let kept: Table = serde_json::from_str(&text).unwrap();
        assert_eq!(kept, table());
    }

    #[test]
    fn a_column_gives_the_numbers_that_are_there() {
        let table = table();
        let numbers: Vec<f64> = table.numbers("media writes paper").map(|it| it.1).collect();
        assert_eq!(numbers, [0.5, 3.0]);
        assert_eq!(table.numbers("none").count(), 0);
    }
}
