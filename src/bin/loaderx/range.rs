//! Ranges of records on the command line, as NumPy counts.

use std::ops::Range;
use std::str::FromStr;

/// `5`, `5..10`, `-3..`, `..10`, `..`: negative numbers count from the end, and what lies beyond an end is cut off, as in
/// NumPy's slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Records {
    One(i64),
    Slice(Option<i64>, Option<i64>),
}

impl FromStr for Records {
    type Err = String;

    fn from_str(text: &str) -> Result<Records, String> {
        let number = |text: &str| {
            text.parse::<i64>().map_err(|_| {
                let before = if text.starts_with("--") { ": options come before the ranges" } else { "" };
                format!("{text:?} is no number{before}")
            })
        };
        let end = |text: &str| if text.is_empty() { Ok(None) } else { number(text).map(Some) };
        match text.split_once("..") {
            Some((begin, after)) => Ok(Records::Slice(end(begin)?, end(after)?)),
            None => number(text).map(Records::One),
        }
    }
}

impl Records {
    /// The indices that are meant, of `len` records. One that is not there is an error.
    pub(crate) fn of(self, len: u64) -> Result<Range<u64>, String> {
        let from_end = |at: i64| if at < 0 { len.checked_sub(at.unsigned_abs()) } else { Some(at.unsigned_abs()) };
        match self {
            Records::One(at) => match from_end(at).filter(|index| *index < len) {
                Some(index) => Ok(index..index + 1),
                None => {
                    Err(format!("there is no record {at}: there are {len}, counted from 0, or from the end from -1 on"))
                }
            },
            Records::Slice(begin, end) => {
                let bound = |at: Option<i64>, open: u64| at.map_or(open, |at| from_end(at).unwrap_or(0).min(len));
                let (begin, end) = (bound(begin, 0), bound(end, len));
                Ok(begin..end.max(begin))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_numpy() {
        // np.arange(10)[…]
        for (text, begin, end) in [
            ("5", 5, 6),
            ("-1", 9, 10),
            ("-10", 0, 1),
            ("5..8", 5, 8),
            ("-3..", 7, 10),
            ("..-8", 0, 2),
            ("..", 0, 10),
            ("8..100", 8, 10),
            ("-100..2", 0, 2),
            ("20..30", 10, 10),
            ("7..3", 7, 7),
        ] {
            assert_eq!(text.parse::<Records>().unwrap().of(10).unwrap(), begin..end, "{text}");
        }
        for text in ["10", "-11", "9223372036854775807", "-9223372036854775808"] {
            assert!(text.parse::<Records>().unwrap().of(10).is_err(), "{text}");
        }
        for text in ["", "a", "1.5", "1...2", "1..2..3", "99999999999999999999"] {
            assert!(text.parse::<Records>().is_err(), "{text}");
        }
    }
}
