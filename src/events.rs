//! What the crate tells a subscriber of `tracing`, as target `loaderx`. Without the feature nothing of it is compiled.

/// `event!(DEBUG, field = value, "message")`: an event in the words of `tracing::event!`.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $($said:tt)+) => {
        tracing::event!(target: "loaderx", tracing::Level::$level, $($said)+)
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($($said:tt)+) => {
        ()
    };
}

pub(crate) use event;
