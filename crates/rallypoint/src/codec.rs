//! The gRPC codec: how messages are buffered on their way to and from the wire.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// The initial size of a buffer, which most messages fit in; it grows for larger ones.
const BUFFER_BYTES: usize = 512;

/// The number of bytes that are gathered before they are passed to the connection.
const FLUSH_BYTES: usize = 32 << 10;

/// [`ProstCodec`] with small buffers. The default buffers take 8 KiB for each direction of every call, which
/// a server would pay for each of its ten thousand idle watches.
#[derive(Debug)]
pub(crate) struct SmallCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallCodec<T, U>
where
    T: Message + 'static,
    U: Message + Default + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER_BYTES, FLUSH_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER_BYTES, FLUSH_BYTES))
    }
}
