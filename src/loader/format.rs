//! What comes out of a loader: batches as they are, or the tensors of a framework.

use crate::error::Result;

/// Makes a batch `B` into what the training loop wants.
///
/// [`host`](Format::host) runs in the loader's workers, beside the training; [`finish`](Format::finish) runs in the
/// thread that asks for the batch, since a device's handles often may not leave it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make a batch of type `{B}` into anything",
    note = "`Native` takes every batch; an adapter takes dense batches, tuples of them, and what its page lists",
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
