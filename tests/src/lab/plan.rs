//! What a scenario wants its lab to be.

/// What a lab begins with.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The nodes' names.
    pub nodes: Vec<String>,
    /// How many GPUs each node has.
    pub gpus: usize,
    /// Further flags of the controller.
    pub controller: Vec<String>,
    /// Further flags of each agent.
    pub driver: Vec<String>,
    /// Whether the server of the programs under test can be made to fail; before a real one stands a proxy then.
    pub failing_server: bool,
    /// A policy file of the agents, on top of the one that they ship with.
    pub policy: Option<&'static str>,
    /// Further flags of a small cluster's server; a real one is as it is.
    pub server: Vec<String>,
}

impl Default for Plan {
    /// Two nodes, eight GPUs each, a controller that evicts for devices and nodes, an agent that looks often.
    fn default() -> Self {
        let flags = |flags: &[&str]| flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self {
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            gpus: 8,
            controller: flags(&["--device-mode", "enforce", "--node-mode", "enforce"]),
            driver: flags(&["--poll-interval", "250ms", "--quiet-period", "1s"]),
            failing_server: false,
            policy: None,
            server: Vec::new(),
        }
    }
}
