//go:build unix

package atomicfile

import "os"

// syncDir makes the folder's entries survive a power cut.
func syncDir(path string) error { return syncFile(path) }

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
