//! What the structs of options have in common: their setters, and how their values are checked.

use crate::{Error, Result};

/// Gives a struct a setter for each of the fields, with its name.
macro_rules! setters {
    ($owner:ident { $($field:ident: $type:ty,)* }) => {
        impl $owner {
            $(
                #[doc = concat!("Sets [`", stringify!($owner), "::", stringify!($field), "`].")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> $owner {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}

pub(super) use setters;

/// The name of an option, whether its value works, and which values do.
pub(super) type Rule = (&'static str, bool, &'static str);

/// An error that names the first option whose value does not work.
pub(super) fn check_rules(rules: &[Rule]) -> Result<()> {
    match rules.iter().find(|(_, holds, _)| !holds) {
        Some((option, _, why)) => Err(Error::InvalidOption {
            option,
            why: (*why).to_owned(),
        }),
        None => Ok(()),
    }
}
