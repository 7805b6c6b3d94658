//! Which part of a batch a rank reads.

use std::env;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The variables in which launchers say a rank and its world: torchrun, Slurm, Open MPI, and Kubernetes' indexed jobs, whose
/// manifest states the world.
const LAUNCHERS: [[&str; 2]; 4] = [
    ["RANK", "WORLD_SIZE"],
    ["SLURM_PROCID", "SLURM_NTASKS"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["JOB_COMPLETION_INDEX", "WORLD_SIZE"],
];

/// One rank of a world: the one that reads part `rank` of the `world` parts of every batch. Rank 0 of 1 by default.
///
/// # Example
///
/// ```
/// use loaderx::Shard;
///
/// let last = Shard::new(3, 4)?;
/// assert_eq!(last.range(256), 192..256);
/// # Ok::<(), loaderx::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Shard {
    rank: u64,
    world: u64,
}

/// What a serialised [`Shard`] claims.
#[derive(Deserialize)]
#[serde(rename = "Shard")]
struct Unchecked {
    rank: u64,
    world: u64,
}

impl TryFrom<Unchecked> for Shard {
    type Error = Error;

    fn try_from(claimed: Unchecked) -> Result<Self> {
        Self::new(claimed.rank, claimed.world)
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self { rank: 0, world: 1 }
    }
}

impl Shard {
    /// Rank `rank` of `world` ranks, counted from 0.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] where `rank` is not below `world`.
    pub fn new(rank: u64, world: u64) -> Result<Self> {
        if rank >= world {
            let reason = format!("rank {rank} is not one of {world} ranks: it is to be below the world's size");
            return Err(Error::invalid("shard", reason));
        }
        Ok(Self { rank, world })
    }

    /// The rank that the launcher of this process says it is, by the variables of its environment:
    ///
    /// | launcher | rank | world |
    /// |---|---|---|
    /// | torchrun | `RANK` | `WORLD_SIZE` |
    /// | Slurm's `srun` | `SLURM_PROCID` | `SLURM_NTASKS` |
    /// | Open MPI's `mpirun` | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` |
    /// | Kubernetes, an indexed job | `JOB_COMPLETION_INDEX` | `WORLD_SIZE`, which its manifest sets |
    ///
    /// Rank 0 of 1 where none of them is set. An empty variable counts as not set. Within a batch script of Slurm, `srun` is
    /// needed even so: to a process without it Slurm says that it is rank 0 of all tasks.
    ///
    /// A rank that is known otherwise needs no environment: [`Shard::new`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], which names the variables and what they say: where a rank has no world or a world no rank; for
    /// what is no number, or no rank of the world; and where launchers contradict one another, such as torchrun, started by
    /// `srun` once a node. Which of them counts is not guessed: say it with [`Shard::new`], or unset the others'.
    ///
    /// ```
    /// use loaderx::{DataLoader, DenseDataset, Shard};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("labels");
    /// # DenseDataset::<i64, ()>::create(&path, ())?.append(&(0..1000).collect::<Vec<_>>())?;
    /// let shard = Shard::from_env()?; // as `torchrun`, `srun` or `mpirun` has it; else rank 0 of 1
    /// let labels = DenseDataset::<i64, ()>::open(path)?;
    /// let loader = DataLoader::builder(labels).batch_size(64).shard(shard).build()?;
    /// # let _ = loader;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_env() -> Result<Self> {
        // What is no UTF-8 is no number either, and is shown as far as it can be.
        Self::stated(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// What the variables that `lookup` gives say.
    fn stated(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut launchers = Vec::with_capacity(LAUNCHERS.len());
        for [rank, world] in LAUNCHERS {
            launchers.push(Stated { rank: Variable::read(rank, &lookup)?, world: Variable::read(world, &lookup)? });
        }
        let invalid = |reason| Err(Error::invalid("shard", reason));
        let whole = launchers.iter().find_map(|stated| Some((stated, stated.rank.value?, stated.world.value?)));
        let Some((first, rank, world)) = whole else {
            let part = launchers.iter().find_map(|stated| match (stated.rank.value, stated.world.value) {
                (None, None) => None,
                (None, _) => Some((&stated.world, &stated.rank)),
                (_, _) => Some((&stated.rank, &stated.world)),
            });
            return part.map_or(Ok(Self::default()), |(set, missing)| {
                let name = missing.name;
                invalid(format!("{set}, and {name} is not set: set both or neither, or use Shard::new(rank, world)"))
            });
        };
        if rank >= world {
            return invalid(format!("{}, and {}: a rank is below the world's size", first.rank, first.world));
        }
        let differs = |variable: &Variable, value| variable.value.is_some_and(|other| other != value);
        match launchers.iter().find(|other| differs(&other.rank, rank) || differs(&other.world, world)) {
            Some(other) => invalid(format!(
                "launchers contradict one another, {first} and {other}: use Shard::new(rank, world), or unset the variables \
                 of the one that does not count"
            )),
            None => Ok(Self { rank, world }),
        }
    }

    /// Which rank this is, from 0.
    pub fn rank(&self) -> u64 {
        self.rank
    }

    /// How many ranks there are.
    pub fn world(&self) -> u64 {
        self.world
    }

    /// The positions of this rank in a batch of `batch_len`: contiguous, and over all ranks every position once. The
    /// parts are equal where `world` divides `batch_len`; else they differ by one at most.
    pub fn range(&self, batch_len: u64) -> Range<u64> {
        // rank <= world, so the quotient is at most batch_len.
        let edge = |rank: u64| (u128::from(rank) * u128::from(batch_len) / u128::from(self.world)) as u64;
        edge(self.rank)..edge(self.rank + 1)
    }
}

/// What one launcher says, or a part of it.
struct Stated {
    rank: Variable,
    world: Variable,
}

/// A variable of the environment; `None` where it is not set.
struct Variable {
    name: &'static str,
    value: Option<u64>,
}

impl Variable {
    fn read(name: &'static str, lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let Some(text) = lookup(name).filter(|text| !text.is_empty()) else {
            return Ok(Self { name, value: None });
        };
        match text.parse() {
            Ok(value) => Ok(Self { name, value: Some(value) }),
            Err(_) => Err(Error::invalid("shard", format!("{name} is {text:?}, which is no number from 0 up"))),
        }
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "{} is {value}", self.name),
            None => write!(f, "{} is not set", self.name),
        }
    }
}

impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.rank, self.world)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Variables = BTreeMap<&'static str, String>;

    fn stated(variables: &Variables) -> Result<Shard> {
        Shard::stated(|name| variables.get(name).cloned())
    }

    fn refusal(variables: &[(&'static str, &str)]) -> String {
        let variables = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        match stated(&variables) {
            Err(error @ Error::Invalid { .. }) => error.to_string(),
            other => panic!("{variables:?}: {other:?}"),
        }
    }

    /// Variables of all launchers, each not set, empty, wrong, or a small number.
    fn any_variables() -> impl Strategy<Value = Variables> {
        let names: Vec<&str> = LAUNCHERS.iter().flatten().copied().collect();
        let value = prop_oneof![
            6 => Just(None),
            1 => Just(Some(String::new())),
            1 => prop::sample::select(&["x", "-1", "1.0", " 1", "18446744073709551616", "\u{fffd}"][..])
                .prop_map(|text| Some(text.to_owned())),
            8 => (0..4_u64).prop_map(|number| Some(number.to_string())),
        ];
        prop::collection::vec(value, names.len()).prop_map(move |values| {
            names.iter().copied().zip(values).filter_map(|(name, value)| Some((name, value?))).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_rank_is_what_every_launcher_says_or_an_error_that_names_a_variable(variables in any_variables()) {
            let set: Variables = variables.clone().into_iter().filter(|(_, value)| !value.is_empty()).collect();
            let number = |name| set.get(name).and_then(|value| value.parse::<u64>().ok());
            // One launcher says both, and nothing else that is set says otherwise.
            let whole = LAUNCHERS.iter().find_map(|[rank, world]| Shard::new(number(rank)?, number(world)?).ok());
            let agrees = |shard: &Shard| LAUNCHERS.iter().all(|[rank, world]| {
                (!set.contains_key(rank) || number(rank) == Some(shard.rank()))
                    && (!set.contains_key(world) || number(world) == Some(shard.world()))
            });
            let wanted = if set.is_empty() { Some(Shard::default()) } else { whole.filter(agrees) };
            let found = stated(&variables);
            if let Err(error) = &found {
                let text = error.to_string();
                prop_assert!(set.iter().any(|(name, value)| text.contains(name) && text.contains(value.as_str())), "{text}");
            }
            prop_assert_eq!(found.ok(), wanted);
        }

        #[test]
        fn each_launcher_alone_is_believed(rank in 0..u64::MAX, above in 1..=u64::MAX, launcher in 0..LAUNCHERS.len()) {
            let world = rank.saturating_add(above);
            let [a, b] = LAUNCHERS[launcher];
            let variables = [(a, rank.to_string()), (b, world.to_string())].into_iter().collect();
            prop_assert_eq!(stated(&variables).unwrap(), Shard::new(rank, world).unwrap());
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value() {
        for ([a, b], says) in [(LAUNCHERS[0], "RANK"), (LAUNCHERS[1], "SLURM_PROCID"), (LAUNCHERS[3], "RANK")] {
            assert!(refusal(&[(b, "4")]).contains(&format!("{b} is 4, and {says} is not set")));
            assert!(refusal(&[(a, "3")]).contains(&format!("{a} is 3, and {b} is not set")));
            assert!(refusal(&[(a, "4"), (b, "4")]).contains(&format!("{a} is 4, and {b} is 4")));
            assert!(refusal(&[(a, "one"), (b, "4")]).contains(&format!("{a} is \"one\"")));
        }
    }

    #[test]
    fn launchers_within_launchers_are_believed_where_they_agree_alone() {
        let torchrun = [("RANK", "5"), ("WORLD_SIZE", "8")];
        // One task a node, which starts torchrun there.
        let text = refusal(&[&torchrun[..], &[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")]].concat());
        assert!(text.contains("(RANK is 5, WORLD_SIZE is 8) and (SLURM_PROCID is 1, SLURM_NTASKS is 2)"), "{text}");
        assert!(text.contains("Shard::new") && text.contains("unset"), "{text}");
        // The shell of `salloc` knows the tasks alone.
        let text = refusal(&[&torchrun[..], &[("SLURM_NTASKS", "2")]].concat());
        assert!(text.contains("SLURM_NTASKS is 2"), "{text}");
        let agreed = [&torchrun[..], &[("SLURM_NTASKS", "8"), ("JOB_COMPLETION_INDEX", "5")]].concat();
        let agreed = agreed.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        assert_eq!(stated(&agreed).unwrap(), Shard::new(5, 8).unwrap());
    }
}
