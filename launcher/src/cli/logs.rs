//! `podcradle logs`.

use std::io::Write as _;

use futures::{AsyncReadExt as _, FutureExt as _};
use podcradle_launcher::cluster::{Call, Deadline, Error, LogOptions};

use super::args::{Global, Logs};
use super::exit::Failed;
use super::{connect, sessions, timeout};

pub async fn logs(global: &Global, args: &Logs) -> Result<(), Failed> {
    sessions::check_name("sandbox", &args.name)?;
    let launcher = connect(global)?;
    let options = LogOptions {
        container: args.container.clone(),
        follow: args.follow,
        tail: args.tail,
        previous: false,
    };
    let (name, time) = (args.name.clone(), timeout(global));
    launcher
        .ask(move |cluster| {
            async move {
                let mut stream = Box::pin(
                    cluster
                        .log_stream(&name, &options, Deadline::after(time).unless_unreachable())
                        .await?,
                );
                let mut buffer = vec![0; 16 * 1024];
                loop {
                    let read = match stream.read(&mut buffer).await {
                        Ok(0) => return Ok(()),
                        Ok(read) => read,
                        Err(error) => {
                            return Err(Error::Unreachable {
                                call: Call {
                                    verb: "get",
                                    resource: "pods/log",
                                    namespace: cluster.namespace().to_owned(),
                                    name,
                                },
                                server: cluster.server().to_owned(),
                                message: format!("the log broke off: {error}"),
                                sent: true,
                            });
                        }
                    };
                    let mut out = std::io::stdout().lock();
                    // A reader that went away ends the command, as with kubectl.
                    if out
                        .write_all(&buffer[..read])
                        .and_then(|()| out.flush())
                        .is_err()
                    {
                        return Ok(());
                    }
                }
            }
            .boxed()
        })
        .await
        .map_err(Failed::from)
}
