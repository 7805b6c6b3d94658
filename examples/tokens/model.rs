//! A language model over bytes: one layer of gated recurrent units (GRU), and the Adam that trains it.

use std::collections::HashMap;
use std::path::Path;

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp3, DType, Device, Layout, Result, Shape, Tensor, Var, bail, safetensors};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A byte is a token.
const TOKENS: usize = 256;

/// The weights. Below, `h` is how many units there are, and `n` how many sequences go through at once.
pub struct Gru {
    /// What each byte adds to the gates, (256, 3h). A byte selects a row: an embedding and the matrix behind it in one.
    input: Tensor,
    /// What the state adds to the gates, (h, 3h).
    recurrent: Tensor,
    /// From a state to a score for each byte, (h, 256).
    output: Tensor,
    /// (256)
    bias: Tensor,
}

impl Gru {
    /// `units` of them, to be trained; the same weights for the same seed.
    pub fn new(units: usize, seed: u64) -> Result<Gru> {
        let scale = 1.0 / (units as f32).sqrt();
        // Larger than is usual for the first and the last, which halves the steps that a short training needs.
        let weights = [
            uniform((TOKENS, 3 * units), 3.0, seed)?,
            uniform((units, 3 * units), 1.7 * scale, seed + 1)?,
            uniform((units, TOKENS), 4.0 * scale, seed + 2)?,
            Tensor::zeros(TOKENS, DType::F32, &Device::Cpu)?,
        ];
        let [input, recurrent, output, bias] = weights.map(|weight| Var::from_tensor(&weight).map(Var::into_inner));
        Ok(Gru { input: input?, recurrent: recurrent?, output: output?, bias: bias? })
    }

    fn weights(&self) -> [(&'static str, &Tensor); 4] {
        [("input", &self.input), ("recurrent", &self.recurrent), ("output", &self.output), ("bias", &self.bias)]
    }

    /// What an optimizer changes.
    pub fn vars(&self) -> Result<Vec<Var>> {
        self.weights().map(|(_, weight)| Var::from_tensor(weight)).into_iter().collect()
    }

    /// The same weights, of whose use no gradient is kept.
    pub fn frozen(&self) -> Gru {
        let [input, recurrent, output, bias] = self.weights().map(|(_, weight)| weight.detach());
        Gru { input, recurrent, output, bias }
    }

    /// The state before anything was read, (n, h).
    pub fn begin(&self, n: usize) -> Result<Tensor> {
        Tensor::zeros((n, self.recurrent.dim(0)?), DType::F32, &Device::Cpu)
    }

    /// Reads `bytes`, u32 (steps n), the first of each of `n` sequences, then the second of each: from the state before,
    /// (n, h), to the states after each step, (steps n, h).
    pub fn read(&self, bytes: &Tensor, state: &Tensor) -> Result<Tensor> {
        self.input.index_select(bytes, 0)?.apply_op3(&self.recurrent, state, Recurrence)
    }

    /// The score of each byte to come next, (n, 256), from the states (n, h).
    pub fn scores(&self, states: &Tensor) -> Result<Tensor> {
        states.matmul(&self.output)?.broadcast_add(&self.bias)
    }

    /// What each byte of the sequences `bytes`, u8 (n, length), costs after the ones before it in the row, in nats:
    /// (n, length - 1), since nothing predicts the first.
    pub fn costs(&self, bytes: &Tensor) -> Result<Tensor> {
        let (n, length) = bytes.dims2()?;
        // Time first, so that each step's bytes lie together. As u32, since Candle takes the largest index of a type
        // for "none", and 255 is a byte.
        let bytes = bytes.to_dtype(DType::U32)?.t()?.contiguous()?;
        let states = self.read(&bytes.narrow(0, 0, length - 1)?.flatten_all()?, &self.begin(n)?)?;
        let scores = self.scores(&states)?; // ((length - 1) n, 256)
        let targets = bytes.narrow(0, 1, length - 1)?.flatten_all()?;
        // No gradient goes through the maximum, which cancels out.
        let scores = scores.broadcast_sub(&scores.max_keepdim(1)?.detach())?;
        let costs = (scores.exp()?.sum(1)?.log()? - scores.gather(&targets.unsqueeze(1)?, 1)?.squeeze(1)?)?;
        costs.reshape((length - 1, n))?.t()
    }

    /// Writes the weights as safetensors.
    pub fn save(&self, file: &Path) -> Result<()> {
        safetensors::save(&HashMap::from(self.weights().map(|(name, weight)| (name, weight.clone()))), file)
    }

    /// The weights that [`save`](Self::save) wrote.
    pub fn load(file: &Path) -> Result<Gru> {
        let mut tensors = safetensors::load(file, &Device::Cpu)?;
        let mut take = |name| match tensors.remove(name) {
            Some(tensor) => Ok(tensor),
            None => bail!("it has no tensor {name:?}"),
        };
        let gru =
            Gru { input: take("input")?, recurrent: take("recurrent")?, output: take("output")?, bias: take("bias")? };
        let units = gru.recurrent.dim(0)?;
        let shapes = [vec![TOKENS, 3 * units], vec![units, 3 * units], vec![units, TOKENS], vec![TOKENS]];
        for ((name, weight), shape) in gru.weights().into_iter().zip(shapes) {
            if (weight.dims(), weight.dtype()) != (&shape[..], DType::F32) {
                bail!("{name} is {:?} {:?}, not F32 {shape:?}", weight.dtype(), weight.dims());
            }
        }
        Ok(gru)
    }
}

/// Numbers from -`scale` to `scale`, each a hash of its place: Candle's own generator takes no seed on the CPU.
fn uniform(shape: (usize, usize), scale: f32, seed: u64) -> Result<Tensor> {
    let values = (0..(shape.0 * shape.1) as u64).map(|i| {
        let unit = xxh3_64_with_seed(&i.to_le_bytes(), seed) >> 40; // 24 bits, all that an f32 holds
        scale * (unit as f32 / (1 << 23) as f32 - 1.0)
    });
    Tensor::from_vec(values.collect(), shape, &Device::Cpu)
}

/// The units over all steps, as one operation of Candle's: from what the bytes add to the gates, (steps n, 3h), what the
/// state adds, as `recurrent` (h, 3h), and the state before, (n, h), to the states after each step, (steps n, h).
///
/// Made of Candle's own operations, each step would be a dozen small ones, and four times as many backwards, where it
/// also adds to a gradient as large as `recurrent`. Here that gradient is one product over all steps.
struct Recurrence;

/// The gates of one unit.
struct Gates {
    update: f32,
    reset: f32,
    candidate: f32,
}

impl Gates {
    /// Of unit `i` of `h`, from what the byte and what the state add, (3h) each.
    fn new(h: usize, i: usize, byte: &[f32], added: &[f32]) -> Gates {
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let update = sigmoid(byte[i] + added[i]);
        let reset = sigmoid(byte[h + i] + added[h + i]);
        // As tanh, in less time.
        let candidate = 2.0 * sigmoid(2.0 * (byte[2 * h + i] + reset * added[2 * h + i])) - 1.0;
        Gates { update, reset, candidate }
    }
}

/// One step of `n` sequences: the states after it.
fn forward(h: usize, bytes: &[f32], added: &[f32], states: &[f32]) -> Vec<f32> {
    let mut next = vec![0.0; states.len()];
    let rows = bytes.chunks_exact(3 * h).zip(added.chunks_exact(3 * h)).zip(states.chunks_exact(h));
    for (((byte, added), state), next) in rows.zip(next.chunks_exact_mut(h)) {
        for i in 0..h {
            let Gates { update, candidate, .. } = Gates::new(h, i, byte, added);
            next[i] = candidate + update * (state[i] - candidate);
        }
    }
    next
}

/// The same step back: turns the gradient of the states after it into that of the states before, as far as they were
/// kept, and what the bytes and the states added into the gradients of these.
fn backward(h: usize, bytes: &mut [f32], added: &mut [f32], states: &[f32], gradients: &mut [f32]) {
    let rows = bytes.chunks_exact_mut(3 * h).zip(added.chunks_exact_mut(3 * h)).zip(states.chunks_exact(h));
    for (((byte, added), state), gradient) in rows.zip(gradients.chunks_exact_mut(h)) {
        for i in 0..h {
            let Gates { update, reset, candidate } = Gates::new(h, i, byte, added);
            let to_update = gradient[i] * (state[i] - candidate) * update * (1.0 - update);
            let to_candidate = gradient[i] * (1.0 - update) * (1.0 - candidate * candidate);
            let to_reset = to_candidate * added[2 * h + i] * reset * (1.0 - reset);
            (byte[i], byte[h + i], byte[2 * h + i]) = (to_update, to_reset, to_candidate);
            (added[i], added[h + i], added[2 * h + i]) = (to_update, to_reset, to_candidate * reset);
            gradient[i] *= update;
        }
    }
}

fn vector(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

impl CustomOp3 for Recurrence {
    fn name(&self) -> &'static str {
        "recurrence"
    }

    fn cpu_fwd(
        &self,
        bytes: &CpuStorage,
        bytes_layout: &Layout,
        recurrent: &CpuStorage,
        recurrent_layout: &Layout,
        begin: &CpuStorage,
        begin_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        fn slice<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
            match layout.contiguous_offsets() {
                Some((begin, end)) => Ok(&storage.as_slice()?[begin..end]),
                None => bail!("recurrence: its arguments are contiguous"),
            }
        }
        let (n, h) = begin_layout.shape().dims2()?;
        let recurrent =
            Tensor::from_slice(slice(recurrent, recurrent_layout)?, recurrent_layout.shape(), &Device::Cpu)?;
        let bytes = slice(bytes, bytes_layout)?;
        let mut state = slice(begin, begin_layout)?.to_vec();
        let mut states = Vec::with_capacity(bytes.len() / 3);
        for bytes in bytes.chunks_exact(3 * n * h) {
            let added = Tensor::from_slice(&state, (n, h), &Device::Cpu)?.matmul(&recurrent)?;
            state = forward(h, bytes, &vector(&added)?, &state);
            states.extend_from_slice(&state);
        }
        let shape = (states.len() / h, h).into();
        Ok((CpuStorage::F32(states), shape))
    }

    fn bwd(
        &self,
        bytes: &Tensor,
        recurrent: &Tensor,
        begin: &Tensor,
        states: &Tensor,
        gradients: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (n, h) = begin.dims2()?;
        let states = Tensor::cat(&[begin, states], 0)?.narrow(0, 0, states.dim(0)?)?; // before each step
        let added = states.matmul(recurrent)?;
        let back = recurrent.t()?.contiguous()?;
        // The memory of these becomes that of their gradients.
        let (mut to_bytes, mut to_added) = (vector(bytes)?, vector(&added)?);
        let (before, gradients) = (vector(&states)?, vector(gradients)?);
        let mut gradient = vec![0.0; n * h];
        let steps = to_bytes.chunks_exact_mut(3 * n * h).zip(to_added.chunks_exact_mut(3 * n * h));
        let steps = steps.zip(before.chunks_exact(n * h)).zip(gradients.chunks_exact(n * h));
        for (((bytes, added), before), after) in steps.rev() {
            gradient.iter_mut().zip(after).for_each(|(gradient, after)| *gradient += after);
            backward(h, bytes, added, before, &mut gradient);
            let through = vector(&Tensor::from_slice(added, (n, 3 * h), &Device::Cpu)?.matmul(&back)?)?;
            gradient.iter_mut().zip(through).for_each(|(gradient, through)| *gradient += through);
        }
        let to_bytes = Tensor::from_vec(to_bytes, bytes.shape(), &Device::Cpu)?;
        let to_recurrent = states.t()?.matmul(&Tensor::from_vec(to_added, added.shape(), &Device::Cpu)?)?;
        let to_begin = Tensor::from_vec(gradient, (n, h), &Device::Cpu)?;
        Ok((Some(to_bytes), Some(to_recurrent), Some(to_begin)))
    }
}

/// Adam (Kingma and Ba, 2015), on gradients whose norm over all weights is clipped.
pub struct Adam {
    /// A weight, and the running means of its gradient and of the gradient's square.
    vars: Vec<(Var, Tensor, Tensor)>,
    step: i32,
}

impl Adam {
    const BETAS: (f64, f64) = (0.9, 0.99);
    const CLIP: f64 = 1.0;

    pub fn new(vars: Vec<Var>) -> Result<Adam> {
        let vars = vars.into_iter().map(|var| Ok((var.clone(), var.zeros_like()?, var.zeros_like()?)));
        Ok(Adam { vars: vars.collect::<Result<_>>()?, step: 0 })
    }

    /// Goes a step down `gradients`.
    pub fn step(&mut self, gradients: &GradStore, learning_rate: f64) -> Result<()> {
        let mut all = Vec::with_capacity(self.vars.len());
        let mut norm = 0.0;
        for (var, ..) in &self.vars {
            let Some(gradient) = gradients.get(var) else { bail!("a weight has no gradient") };
            // Candle's gradients remember how they were made: what is kept of one would keep its whole step in memory.
            let gradient = gradient.detach();
            norm += f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?);
            all.push(gradient);
        }
        let clip = (Self::CLIP / norm.sqrt()).min(1.0);
        self.step += 1;
        let (beta1, beta2) = Self::BETAS;
        let unbiased = |beta: f64| 1.0 / (1.0 - beta.powi(self.step));
        for ((var, mean, square), gradient) in self.vars.iter_mut().zip(all) {
            let gradient = (gradient * clip)?;
            *mean = ((&*mean * beta1)? + (&gradient * (1.0 - beta1))?)?;
            *square = ((&*square * beta2)? + (gradient.sqr()? * (1.0 - beta2))?)?;
            let scale = ((&*square * unbiased(beta2))?.sqrt()? + 1e-8)?;
            var.set(&(var.as_tensor() - ((&*mean * (learning_rate * unbiased(beta1)))? / scale)?)?)?;
        }
        Ok(())
    }
}
