/* Holds a pod's namespaces open: the process of the image the container
 * runtime starts first in every pod. It waits, reaps what is left to it, and
 * ends on SIGTERM or SIGINT. Signals are blocked and taken one at a time, so
 * there is no handler to race with; a blocked signal reaches PID 1 although
 * its disposition is the default one. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void)
{
	sigset_t taken;
	int signal;

	sigemptyset(&taken);
	sigaddset(&taken, SIGTERM);
	sigaddset(&taken, SIGINT);
	sigaddset(&taken, SIGCHLD);
	sigprocmask(SIG_BLOCK, &taken, NULL);
	for (;;) {
		if (sigwait(&taken, &signal) != 0)
			return 1;
		if (signal != SIGCHLD)
			return 0;
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}
