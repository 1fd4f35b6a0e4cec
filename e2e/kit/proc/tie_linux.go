package proc

import "syscall"

// tie has the process die with the test, however that ends.
func tie(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
