//! What comes out of a loader: batches as they are, or the tensors of a framework.

use crate::error::Result;

/// Makes a batch `B` into what the training loop wants.
///
/// [`host`](Format::host) runs in the loader's workers, beside the training; [`finish`](Format::finish) runs in the
/// thread that asks for the batch, since a device's handles often may not leave it.
///
/// ```
/// use loaderx::{DataLoader, DenseBatch, DenseDataset, Format, Result, Shape};
///
/// /// Batches as vectors of rows.
/// struct Rows;
///
/// impl<S: Shape> Format<DenseBatch<f32, S>> for Rows {
///     type Host = Vec<Vec<f32>>;
///     type Out = Vec<Vec<f32>>;
///
///     fn host(&self, batch: DenseBatch<f32, S>) -> Result<Self::Host> {
///         Ok(batch.rows().map(<[f32]>::to_vec).collect())
///     }
///
///     fn finish(&self, host: Self::Host) -> Result<Self::Out> {
///         Ok(host)
///     }
/// }
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("vectors");
/// # DenseDataset::<f32, [usize; 1]>::create(&path, [2])?.append(&[0.5; 20])?;
/// let vectors = DenseDataset::<f32, [usize; 1]>::open(path)?;
/// let loader = DataLoader::builder(vectors).batch_size(4).yields(Rows).build()?;
/// assert_eq!(loader.batch(0)?, vec![vec![0.5, 0.5]; 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make a batch of type `{B}` into anything",
    note = "`Native` takes every batch; a type of your own implements `Format` for the batches that it takes",
    note = "`map` before `yields` makes a batch into one that the format takes"
)]
pub trait Format<B>: Send + Sync + 'static {
    /// What a worker hands to the consumer.
    type Host: Send + 'static;
    /// What comes out.
    type Out: 'static;

    /// The part that needs no device: it runs in a worker.
    ///
    /// # Errors
    /// Where the batch cannot be converted.
    fn host(&self, batch: B) -> Result<Self::Host>;

    /// The part that needs the consumer's thread: it moves what `host` made to its device.
    ///
    /// # Errors
    /// Where the device refuses.
    fn finish(&self, host: Self::Host) -> Result<Self::Out>;
}

/// The batch itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native;

impl<B: Send + 'static> Format<B> for Native {
    type Host = B;
    type Out = B;

    fn host(&self, batch: B) -> Result<B> {
        Ok(batch)
    }

    fn finish(&self, host: B) -> Result<B> {
        Ok(host)
    }
}

/// Marks a format that converts a tuple of batches part by part: `Format<A>` and `Format<B>` give `Format<(A, B)>`.
pub trait Adapter: Send + Sync + 'static {}

macro_rules! tuple {
    ($($batch:ident $at:tt),+) => {
        impl<X: Adapter, $($batch),+> Format<($($batch,)+)> for X
        where
            $(X: Format<$batch>),+
        {
            type Host = ($(<X as Format<$batch>>::Host,)+);
            type Out = ($(<X as Format<$batch>>::Out,)+);

            fn host(&self, batch: ($($batch,)+)) -> Result<Self::Host> {
                Ok(($(<X as Format<$batch>>::host(self, batch.$at)?,)+))
            }

            fn finish(&self, host: Self::Host) -> Result<Self::Out> {
                Ok(($(<X as Format<$batch>>::finish(self, host.$at)?,)+))
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

#[cfg(test)]
mod tests {
    use super::super::DataLoader;
    use super::super::testing::Memory;
    use super::*;

    /// Counts, and tells text from numbers.
    struct Count;

    impl Adapter for Count {}

    impl Format<Vec<u64>> for Count {
        type Host = usize;
        type Out = usize;

        fn host(&self, batch: Vec<u64>) -> Result<usize> {
            Ok(batch.len())
        }

        fn finish(&self, host: usize) -> Result<usize> {
            Ok(host)
        }
    }

    impl Format<String> for Count {
        type Host = String;
        type Out = String;

        fn host(&self, batch: String) -> Result<String> {
            Ok(batch + "!")
        }

        fn finish(&self, host: String) -> Result<String> {
            Ok(host + "?")
        }
    }

    #[test]
    fn an_adapter_takes_tuples_of_what_it_takes() {
        let builder = DataLoader::builder((Memory::new(9), Memory::new(9))).batch_size(3).workers(1);
        let builder = builder.map(|_, (x, y)| Ok((x, (String::from("text"), y)))).yields(Count);
        let mut loader: DataLoader<(usize, (String, usize))> = builder.build().unwrap();
        assert_eq!(loader.next().unwrap().unwrap(), (3, ("text!?".to_owned(), 3)));
    }
}
