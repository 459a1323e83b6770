//! Who may talk to the API server: one token for each, as lines of its token file, and a kubeconfig for each.

use anyhow::Result;
use serde_json::{Value, json};
use uuid::Uuid;

use super::files::write_private;
use super::layout::RunDir;

/// The one real node's name.
pub(super) const NODE: &str = "n1";

/// Somebody with a token.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// The kubeconfig's file in the run folder.
    file: &'static str,
    user: &'static str,
    group: &'static str,
}

/// Without the group, kube-controller-manager with an account for each controller lacks the rights to make those accounts' tokens.
const ACCOUNTS: [Account; 4] = [
    Account { file: "kubeconfig", user: "admin", group: "system:masters" },
    Account { file: "controllers.conf", user: "system:kube-controller-manager", group: "system:masters" },
    Account { file: "scheduler.conf", user: "system:kube-scheduler", group: "system:authenticated" },
    Account { file: "kubelet.conf", user: "system:node:n1", group: "system:nodes" },
];

/// What lets every kubelet read every claim. Without it the Node authorizer alone says which claims a kubelet may read, from what its server has seen of
/// pods. A kubelet that hears of its pod sooner is refused, and looks at the pod again only after a minute or more (kubernetes/kubernetes#139836).
pub(super) fn claim_readers() -> [Value; 2] {
    let name = json!({"name": "devicetaint.dev:nodes-read-claims"});
    let rule = json!({"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]});
    let group = json!({"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"});
    let role = json!({"kind": "ClusterRole", "name": name["name"], "apiGroup": "rbac.authorization.k8s.io"});
    [
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": name, "rules": [rule]}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": name, "roleRef": role, "subjects": [group],
        }),
    ]
}

/// Where the API server is.
pub(super) fn server(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

/// Writes the token file and every kubeconfig.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn write(run: &RunDir, port: u16) -> Result<()> {
    let mut lines = String::new();
    for account in ACCOUNTS {
        let token = Uuid::new_v4().simple().to_string();
        lines.push_str(&token_line(&account, &token));
        let text = kubeconfig(&server(port), &run.text("pki/ca.crt"), account.user, &token).to_string();
        write_private(&run.path(account.file), text.as_bytes())?;
    }
    write_private(&run.path("tokens.csv"), lines.as_bytes())
}

/// Token, name, uid, groups.
fn token_line(account: &Account, token: &str) -> String {
    format!("{token},{},{},\"{}\"\n", account.user, account.file, account.group)
}

/// A kubeconfig as JSON, which is YAML too.
fn kubeconfig(server: &str, authority: &str, user: &str, token: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
        "current-context": "real",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_account_gets_a_token_and_a_kubeconfig_that_match() {
        let parent = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
        let run = RunDir::new(&parent.path().join("r")).unwrap();
        std::fs::create_dir(run.root()).unwrap();
        write(&run, 1234).unwrap();
        let tokens = std::fs::read_to_string(run.path("tokens.csv")).unwrap();
        assert_eq!(tokens.lines().count(), 4);
        let kubelet: Value = serde_json::from_slice(&std::fs::read(run.path("kubelet.conf")).unwrap()).unwrap();
        let token = kubelet["users"][0]["user"]["token"].as_str().unwrap();
        assert!(tokens.contains(&format!("{token},system:node:{NODE},kubelet.conf,\"system:nodes\"\n")), "{tokens}");
        assert_eq!(kubelet["clusters"][0]["cluster"]["server"], "https://127.0.0.1:1234");
    }
}
