//go:build !unix

package atomicfile

import "os"

// syncDir does nothing: folders cannot be synced here.
func syncDir(string) error { return nil }

// syncFile opens for writing because some systems refuse to sync otherwise.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
