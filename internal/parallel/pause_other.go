//go:build !amd64

package parallel

// pause does nothing on processors for which no instruction is given.
func pause() {}
