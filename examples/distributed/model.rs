//! One hidden layer, by hand: what matters here is who computes which part of a gradient.

use xxhash_rust::xxh3::xxh3_64;

const PIXELS: usize = 28 * 28;
const HIDDEN: usize = 32;
const CLASSES: usize = 10;
const SECOND: usize = PIXELS * HIDDEN;

/// The weights of both layers, end to end.
pub struct Model {
    pub weights: Vec<f32>,
}

impl Model {
    /// The same in every process.
    pub fn new() -> Model {
        let mut state = 42u64;
        let mut random = |scale: f32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) * scale
        };
        Model { weights: (0..SECOND + HIDDEN * CLASSES).map(|i| random(if i < SECOND { 0.1 } else { 0.5 })).collect() }
    }

    /// The gradient of each of so many equal parts of these records: summed over the records of the part.
    pub fn gradients(&self, images: &[u8], labels: &[u8], parts: usize) -> Vec<Vec<f32>> {
        let records = labels.len() / parts;
        let parts = images.chunks(records * PIXELS).zip(labels.chunks(records));
        parts.map(|(images, labels)| self.gradient(images, labels)).collect()
    }

    fn gradient(&self, images: &[u8], labels: &[u8]) -> Vec<f32> {
        let (first, second) = self.weights.split_at(SECOND);
        let mut gradient = vec![0.0; self.weights.len()];
        let (first_gradient, second_gradient) = gradient.split_at_mut(SECOND);
        for (image, &label) in images.chunks(PIXELS).zip(labels) {
            let mut hidden = [0.0f32; HIDDEN];
            for (pixel, weights) in image.iter().zip(first.chunks(HIDDEN)).filter(|(pixel, _)| **pixel > 0) {
                let pixel = f32::from(*pixel) / 255.0;
                hidden.iter_mut().zip(weights).for_each(|(hidden, weight)| *hidden += pixel * weight);
            }
            hidden.iter_mut().for_each(|hidden| *hidden = hidden.max(0.0));
            let mut scores = [0.0f32; CLASSES];
            for (hidden, weights) in hidden.iter().zip(second.chunks(CLASSES)) {
                scores.iter_mut().zip(weights).for_each(|(score, weight)| *score += hidden * weight);
            }
            let most = scores.iter().copied().fold(f32::MIN, f32::max);
            let mut errors = scores.map(|score| (score - most).exp());
            let sum: f32 = errors.iter().sum();
            errors.iter_mut().for_each(|error| *error /= sum);
            errors[usize::from(label)] -= 1.0;
            let mut back = [0.0f32; HIDDEN];
            for (at, back) in back.iter_mut().enumerate().filter(|(at, _)| hidden[*at] > 0.0) {
                *back = second[at * CLASSES..].iter().zip(&errors).map(|(weight, error)| weight * error).sum();
            }
            for (hidden, gradient) in hidden.iter().zip(second_gradient.chunks_mut(CLASSES)) {
                gradient.iter_mut().zip(&errors).for_each(|(gradient, error)| *gradient += hidden * error);
            }
            for (pixel, gradient) in
                image.iter().zip(first_gradient.chunks_mut(HIDDEN)).filter(|(pixel, _)| **pixel > 0)
            {
                let pixel = f32::from(*pixel) / 255.0;
                gradient.iter_mut().zip(&back).for_each(|(gradient, back)| *gradient += pixel * back);
            }
        }
        gradient
    }

    pub fn step(&mut self, gradient: &[f32], rate: f32) {
        self.weights.iter_mut().zip(gradient).for_each(|(weight, gradient)| *weight -= rate * gradient);
    }

    pub fn hash(&self) -> u64 {
        xxh3_64(&self.weights.iter().flat_map(|weight| weight.to_le_bytes()).collect::<Vec<_>>())
    }
}
