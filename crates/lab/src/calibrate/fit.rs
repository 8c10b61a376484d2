//! Least squares by the method of Levenberg and Marquardt, with the standard error of each unknown.
//!
//! Unknowns are logarithms of factors relative to a start; residuals are logarithms too, in units
//! of their noise. A weak tie holds each unknown to its start: an unknown without influence stays
//! there, and its error shows that.

use super::float;

/// Prior standard deviation of an unknown, before any measurement.
const TIE: f64 = 1.0;
/// Factors by which the noise is enlarged, step by step, so that the ties lead to the right valley
/// first.
const COARSE: [f64; 3] = [30.0, 6.0, 1.0];
/// Maximum number of steps, and the relative gain below which the search ends.
const ROUNDS: u32 = 40;
const ENOUGH: f64 = 1e-3;
/// Longest step of an unknown.
const STEP_MAX: f64 = 0.7;
/// Damping above which no step helps.
const DAMPING_MAX: f64 = 1e8;

/// Residuals in units of their noise; `None` if the unknowns do not give a valid model.
pub(super) type Residuals<'a> = dyn FnMut(&[f64]) -> Option<Vec<f64>> + 'a;

/// Result of the search.
#[derive(Clone, Debug)]
pub(super) struct Solution {
    pub(super) at: Vec<f64>,
    /// Sum of the squared residuals, without the ties.
    pub(super) cost: f64,
    /// Standard error of each unknown, with all others free, for residuals of noise 1.
    pub(super) errors: Vec<f64>,
    /// Derivative of each residual, by unknown.
    pub(super) slopes: Vec<Vec<f64>>,
}

fn squares(residuals: &[f64]) -> f64 {
    residuals.iter().map(|r| r * r).sum()
}

fn ties(at: &[f64]) -> f64 {
    squares(at) / (TIE * TIE)
}

/// Searches from 0; derivatives are differences over `width`. `None` if the start does not give a
/// valid model.
pub(super) fn solve(
    unknowns: usize,
    width: f64,
    residuals: &mut Residuals<'_>,
) -> Option<Solution> {
    let mut at = vec![0.0; unknowns];
    for scale in COARSE {
        let mut scaled = |at: &[f64]| {
            let mut all = residuals(at)?;
            all.iter_mut().for_each(|r| *r /= scale);
            Some(all)
        };
        at = descend(at, width, &mut scaled)?;
    }
    let now = residuals(&at)?;
    let slopes = differences(&at, &now, width, residuals);
    let (matrix, _) = normal(&slopes, &now, &at);
    let covariance = inverse(matrix)?;
    Some(Solution {
        errors: covariance
            .iter()
            .enumerate()
            .map(|(at, row)| row[at].max(0.0).sqrt())
            .collect(),
        cost: squares(&now),
        at,
        slopes,
    })
}

/// The minimum reached by descending from `at`.
fn descend(mut at: Vec<f64>, width: f64, residuals: &mut Residuals<'_>) -> Option<Vec<f64>> {
    let mut now = residuals(&at)?;
    let mut damping = 1e-3;
    let mut slopes = differences(&at, &now, width, residuals);
    for _ in 0..ROUNDS {
        let cost = squares(&now) + ties(&at);
        let (matrix, gradient) = normal(&slopes, &now, &at);
        let mut gain = 0.0;
        while damping < DAMPING_MAX {
            let mut damped = matrix.clone();
            for (at, row) in damped.iter_mut().enumerate() {
                row[at] *= 1.0 + damping;
            }
            let step = product(&inverse(damped)?, &gradient);
            let new: Vec<f64> = at
                .iter()
                .zip(&step)
                .map(|(at, step)| at - step.clamp(-STEP_MAX, STEP_MAX))
                .collect();
            let tried = residuals(&new);
            let better = tried.filter(|r| squares(r) + ties(&new) < cost);
            if let Some(better) = better {
                gain = cost - squares(&better) - ties(&new);
                (at, now) = (new, better);
                damping = (damping / 10.0).max(1e-9);
                break;
            }
            damping *= 10.0;
        }
        if gain < ENOUGH * (1.0 + cost) {
            break;
        }
        slopes = differences(&at, &now, width, residuals);
    }
    Some(at)
}

/// Derivatives of the residuals, by unknown. If only one side gives a valid model, that side
/// counts.
fn differences(
    at: &[f64],
    now: &[f64],
    width: f64,
    residuals: &mut Residuals<'_>,
) -> Vec<Vec<f64>> {
    let mut beside = |unknown: usize, by: f64| {
        let mut moved = at.to_vec();
        moved[unknown] += by;
        residuals(&moved)
    };
    let columns = (0..at.len()).map(|unknown| {
        let (low, high) = (beside(unknown, -width), beside(unknown, width));
        let over = width * float(u64::from(low.is_some()) + u64::from(high.is_some()));
        let low = low.as_deref().unwrap_or(now).to_vec();
        let high = high.as_deref().unwrap_or(now).to_vec();
        let pairs = low.iter().zip(high);
        pairs
            .map(|(low, high)| (high - low) / over.max(width))
            .collect()
    });
    columns.collect()
}

/// Matrix and right side of the normal equations.
fn normal(slopes: &[Vec<f64>], now: &[f64], at: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let tie = 1.0 / (TIE * TIE);
    let mut matrix: Vec<Vec<f64>> = slopes
        .iter()
        .map(|a| slopes.iter().map(|b| dot(a, b)).collect())
        .collect();
    for (at, row) in matrix.iter_mut().enumerate() {
        row[at] += tie;
    }
    let gradient = slopes
        .iter()
        .zip(at)
        .map(|(slope, at)| dot(slope, now) + at * tie);
    (matrix, gradient.collect())
}

fn product(matrix: &[Vec<f64>], vector: &[f64]) -> Vec<f64> {
    let rows = matrix.iter();
    rows.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
        .collect()
}

/// Inverse by Gauss-Jordan elimination with pivots; `None` for a singular matrix.
fn inverse(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let count = matrix.len();
    let mut result: Vec<Vec<f64>> = (0..count)
        .map(|row| {
            (0..count)
                .map(|column| if row == column { 1.0 } else { 0.0 })
                .collect()
        })
        .collect();
    for column in 0..count {
        let pivot = (column..count).max_by(|a, b| {
            matrix[*a][column]
                .abs()
                .total_cmp(&matrix[*b][column].abs())
        })?;
        matrix.swap(column, pivot);
        result.swap(column, pivot);
        let scale = matrix[column][column];
        if !scale.is_normal() {
            return None;
        }
        for value in matrix[column].iter_mut().chain(&mut result[column]) {
            *value /= scale;
        }
        let (own, own_result) = (matrix[column].clone(), result[column].clone());
        for row in (0..count).filter(|row| *row != column) {
            let factor = matrix[row][column];
            let subtract = |to: &mut Vec<f64>, from: &[f64]| {
                to.iter_mut()
                    .zip(from)
                    .for_each(|(to, from)| *to -= factor * from);
            };
            subtract(&mut matrix[row], &own);
            subtract(&mut result[row], &own_result);
        }
    }
    Some(result)
}

/// Standard errors to each side that hold 95 %, if the noise was estimated with `freedom` more
/// residuals than unknowns.
pub(super) fn ninety_five(freedom: usize) -> f64 {
    /// Student's t, two-sided 95 %, from 1 degree of freedom on.
    const STUDENT: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
    match STUDENT.get(freedom.saturating_sub(1)) {
        Some(value) => *value,
        None => 1.96 + 2.4 / float(freedom as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_is_one() {
        let matrix = vec![
            vec![0.0, 2.0, 1.0],
            vec![4.0, 1.0, 0.0],
            vec![1.0, 1.0, 3.0],
        ];
        let inverse = inverse(matrix.clone()).unwrap();
        for (number, row) in matrix.iter().enumerate() {
            let row = product(
                &(0..3)
                    .map(|c| inverse.iter().map(|r| r[c]).collect())
                    .collect::<Vec<Vec<f64>>>(),
                row,
            );
            for (column, value) in row.iter().enumerate() {
                let expected = if column == number { 1.0 } else { 0.0 };
                assert!((value - expected).abs() < 1e-12, "{row:?}");
            }
        }
        assert!(super::inverse(vec![vec![1.0, 1.0], vec![1.0, 1.0]]).is_none());
    }

    #[test]
    fn what_is_bound_is_found_and_what_is_not_says_so() {
        // a = 5, b = 0.2 in a + b x; nothing depends on the third
        let xs = [1.0, 10.0, 100.0, 1000.0];
        let mut residuals = |at: &[f64]| {
            let all = xs.iter().map(|x| {
                let expected: f64 = 5.0 + 0.2 * x;
                ((at[0].exp() + at[1].exp() * x) / expected).ln() / 0.003
            });
            Some(all.collect())
        };
        let solution = solve(3, 0.01, &mut residuals).unwrap();
        assert!((solution.at[0].exp() - 5.0).abs() < 1e-3, "{solution:?}");
        assert!((solution.at[1].exp() - 0.2).abs() < 1e-4, "{solution:?}");
        assert!(solution.errors[0] < 0.01 && solution.errors[1] < 0.01);
        assert!(solution.errors[2] > 0.99, "{solution:?}");
        assert!(solution.cost < 1e-3);
    }
}
