// Command forward accepts TCP connections in the network namespace that it is started in, and carries them to an
// address in another one:
//
//	forward LISTEN NETNS TARGET
//	forward 127.0.0.1:6443 /run/netns/cp 10.98.0.1:6443
//
// A listening socket stays in the namespace that it was made in: so forward listens first, and then runs itself again,
// in NETNS, with that socket as file 3.
package main

import (
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"syscall"
)

const inherited = "FORWARD_LISTENER"

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: forward LISTEN NETNS TARGET")
	}
	var err error
	if os.Getenv(inherited) == "" {
		err = listen(os.Args[1], os.Args[2])
	} else {
		err = serve(os.Args[3])
	}
	log.Fatal("forward: ", err)
}

func listen(addr, netns string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	if f.Fd() != 3 { // dup3 to the same number is an error, and keeps close-on-exec
		if err := syscall.Dup3(int(f.Fd()), 3, 0); err != nil {
			return err
		}
	} else if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, 3, syscall.F_SETFD, 0); e != 0 {
		return e
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	argv := append([]string{"nsenter", "--net=" + netns, self}, os.Args[1:]...)
	return syscall.Exec(nsenter, argv, append(os.Environ(), inherited+"=3"))
}

func serve(target string) error {
	ln, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	for {
		in, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close() // nothing was said yet
				return
			}
			go pipe(out.(*net.TCPConn), in.(*net.TCPConn))
			pipe(in.(*net.TCPConn), out.(*net.TCPConn))
		}()
	}
}

// pipe copies one direction and passes on the end of the stream; an error ends both directions.
func pipe(dst, src *net.TCPConn) {
	if _, err := io.Copy(dst, src); err != nil {
		_, _ = dst.Close(), src.Close()
		return
	}
	_ = dst.CloseWrite() // an end that nobody waits for any more
}
