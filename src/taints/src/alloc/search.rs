//! The allocation itself: what each alternative may have, then a combination for all requests, in the order of preference.

use std::collections::{BTreeSet, HashMap};

use super::{Alternative, Amount, Answer, Candidate, Constraint, Denied, Failure, Outcome, Pick, Request};
use crate::device;
use crate::object::{Attribute, DeviceId, Key};

/// How many devices one allocation may try before it gives up: combinations grow fast, and a scheduler must answer.
const MOST_STEPS: usize = 100_000;

/// Evaluates the selectors of a request (`main` or `main/sub`) on a device: those of its class and its own.
pub type Selector<'a> = dyn FnMut(&str, &Candidate<'_>) -> Result<bool, String> + 'a;

/// Says which claim has a device already; a claim of no name for one that is not known by name.
pub type Taken<'a> = dyn Fn(&DeviceId) -> Option<Key> + 'a;

/// Chooses devices for all requests of a claim: the first that will do, in the candidates' order.
///
/// Admin access may share a device that is in use. `All` fails when one of the devices that it matches cannot be had.
pub fn allocate(
    requests: &[Request],
    constraints: &[Constraint],
    candidates: &[Candidate<'_>],
    selector: &mut Selector<'_>,
    taken: &Taken<'_>,
) -> Outcome {
    let mut answers = Vec::new();
    let mut choices = Vec::new();
    for request in requests {
        let alternatives = request.alternatives.iter().map(|alternative| {
            let name = full_name(request, alternative);
            let denials: Vec<Option<Denied>> =
                candidates.iter().map(|candidate| denied(&name, alternative, candidate, selector, taken)).collect();
            answers.extend(candidates.iter().zip(&denials).map(|(candidate, denied)| Answer {
                request: name.clone(),
                device: candidate.id.clone(),
                denied: denied.clone(),
            }));
            Choice::new(name, alternative, candidates, &denials)
        });
        choices.push(alternatives.collect::<Vec<_>>());
    }
    Outcome { picks: combine(&choices, constraints, candidates), answers }
}

fn full_name(request: &Request, alternative: &Alternative) -> String {
    match &alternative.name {
        Some(sub) => format!("{}/{sub}", request.name),
        None => request.name.clone(),
    }
}

/// Why an alternative may not have a device. What everyone can see comes before what must be evaluated.
fn denied(
    name: &str,
    alternative: &Alternative,
    candidate: &Candidate<'_>,
    selector: &mut Selector<'_>,
    taken: &Taken<'_>,
) -> Option<Denied> {
    if !candidate.reachable {
        return Some(Denied::WrongNode);
    }
    if let Some(problem) = &candidate.problem {
        return Some(Denied::Pool(problem.clone()));
    }
    match selector(name, candidate) {
        Ok(true) => {}
        Ok(false) => return Some(Denied::Selector),
        Err(message) => return Some(Denied::SelectorError(message)),
    }
    let taints = candidate.taints.iter().map(|(taint, _)| *taint);
    if let Some(taint) = device::first_untolerated(taints, &alternative.tolerations) {
        let origin = candidate.taints.iter().find(|(other, _)| std::ptr::eq(*other, taint));
        return origin.map(|(taint, origin)| Denied::Untolerated {
            taint: (*taint).clone(),
            origin: origin.clone(),
            nearest: device::nearest_miss(&alternative.tolerations, taint).map(Box::new),
        });
    }
    let shared = alternative.admin_access || candidate.device.allow_multiple_allocations;
    let owner = taken(&candidate.id).filter(|_| !shared)?;
    Some(Denied::Taken((!owner.name.is_empty()).then_some(owner)))
}

/// One alternative of one request, ready for the search.
struct Choice<'a> {
    name: String,
    alternative: &'a Alternative,
    /// The candidates that it may have, by position.
    allowed: Vec<usize>,
    /// How many devices it needs.
    needed: usize,
    /// Why it cannot be satisfied whatever the others get.
    hopeless: Option<Failure>,
}

impl<'a> Choice<'a> {
    fn new(
        name: String,
        alternative: &'a Alternative,
        candidates: &[Candidate<'_>],
        denials: &[Option<Denied>],
    ) -> Self {
        let allowed: Vec<usize> = (0..denials.len()).filter(|position| denials[*position].is_none()).collect();
        let needed = match alternative.amount {
            Amount::Exact(count) => count,
            Amount::All => allowed.len(),
        };
        let hopeless = hopeless(&name, alternative.amount, &allowed, candidates, denials);
        Self { name, alternative, allowed, needed, hopeless }
    }
}

fn hopeless(
    name: &str,
    amount: Amount,
    allowed: &[usize],
    candidates: &[Candidate<'_>],
    denials: &[Option<Denied>],
) -> Option<Failure> {
    let request = name.to_owned();
    let enough_at = match amount {
        Amount::Exact(count) => allowed.get(count.saturating_sub(1)).copied(),
        Amount::All => None,
    };
    // A selector that fails before enough devices are found leaves open what the request means.
    for (position, denial) in
        denials.iter().enumerate().take_while(|(position, _)| enough_at.is_none_or(|at| *position < at))
    {
        if let Some(Denied::SelectorError(message)) = denial {
            let device = candidates[position].id.clone();
            return Some(Failure::Selector { request, device, message: message.clone() });
        }
    }
    match amount {
        Amount::Exact(needed) => {
            let available = allowed.len();
            (available < needed).then_some(Failure::TooFew { request, needed, available })
        }
        Amount::All => {
            let missing = denials.iter().position(|denial| {
                matches!(denial, Some(Denied::Pool(_) | Denied::Untolerated { .. } | Denied::Taken(_)))
            });
            let device = missing.map(|position| candidates[position].id.clone());
            (device.is_some() || allowed.is_empty()).then_some(Failure::NotAll { request, device })
        }
    }
}

/// Finds a combination for all requests.
fn combine(
    choices: &[Vec<Choice<'_>>],
    constraints: &[Constraint],
    candidates: &[Candidate<'_>],
) -> Result<Vec<Pick>, Failure> {
    for alternatives in choices {
        // The first alternative is the one that was wanted: its failure is the one to tell.
        let open = alternatives.iter().any(|choice| choice.hopeless.is_none());
        if !open {
            return Err(alternatives.iter().find_map(|choice| choice.hopeless.clone()).unwrap_or(Failure::Together));
        }
    }
    let mut search = Search { choices, constraints, candidates, picked: Vec::new(), taken: BTreeSet::new(), steps: 0 };
    if search.request(0) {
        return Ok(search.picks());
    }
    Err(if search.steps >= MOST_STEPS { Failure::TooComplex } else { Failure::Together })
}

/// A depth-first search: requests in order, alternatives in order, devices in order.
struct Search<'a> {
    choices: &'a [Vec<Choice<'a>>],
    constraints: &'a [Constraint],
    candidates: &'a [Candidate<'a>],
    /// Each device given so far, and to whom.
    picked: Vec<(&'a Choice<'a>, usize)>,
    /// The candidates that one request of this claim has to itself.
    taken: BTreeSet<usize>,
    steps: usize,
}

impl<'a> Search<'a> {
    fn request(&mut self, number: usize) -> bool {
        let Some(alternatives) = self.choices.get(number) else { return true };
        let open = alternatives.iter().filter(|choice| choice.hopeless.is_none());
        open.into_iter().any(|choice| self.fill(number, choice, 0, choice.needed))
    }

    /// Gives `left` more devices to a choice, from the position `from` of those that it may have; then goes on.
    fn fill(&mut self, number: usize, choice: &'a Choice<'a>, from: usize, left: usize) -> bool {
        if left == 0 {
            return self.request(number + 1);
        }
        let last = choice.allowed.len().saturating_sub(left);
        for index in from..=last {
            let Some(position) = choice.allowed.get(index).copied() else { return false };
            self.steps += 1;
            if self.steps >= MOST_STEPS {
                return false;
            }
            if !self.fits(choice, position) {
                continue;
            }
            let exclusive = !choice.alternative.admin_access && self.taken.insert(position);
            self.picked.push((choice, position));
            if self.fill(number, choice, index + 1, left - 1) {
                return true;
            }
            self.picked.pop();
            if exclusive {
                self.taken.remove(&position);
            }
        }
        false
    }

    fn fits(&self, choice: &Choice<'_>, position: usize) -> bool {
        let free = choice.alternative.admin_access || !self.taken.contains(&position);
        free && self.constraints.iter().filter(|constraint| constraint.covers(&choice.name)).all(|constraint| {
            let value = self.attribute(position, constraint);
            let mut peers = self.picked.iter().filter(|(peer, _)| constraint.covers(&peer.name));
            value.is_some() && peers.all(|(_, peer)| self.attribute(*peer, constraint) == value)
        })
    }

    fn attribute(&self, position: usize, constraint: &Constraint) -> Option<&'a Attribute> {
        self.candidates[position].device.attributes.get(&constraint.attribute)
    }

    fn picks(&self) -> Vec<Pick> {
        let picks = self.picked.iter().map(|(choice, position)| Pick {
            request: choice.name.clone(),
            device: self.candidates[*position].id.clone(),
            tolerations: choice.alternative.tolerations.clone(),
            admin_access: choice.alternative.admin_access,
        });
        picks.collect()
    }
}

impl Constraint {
    /// Whether it binds a request: by its own name, or by that of the request that a sub-request belongs to.
    fn covers(&self, name: &str) -> bool {
        let main = name.split('/').next().unwrap_or(name);
        self.requests.is_empty() || self.requests.iter().any(|request| request == name || request == main)
    }
}

/// The denials of one request, counted by what was denied, for a line of explanation.
#[must_use]
pub fn tally(answers: &[Answer], request: &str) -> Vec<(String, usize)> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for denied in answers.iter().filter(|answer| answer.request == request).filter_map(|answer| answer.denied.as_ref())
    {
        *counts.entry(denied.to_string()).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
}
