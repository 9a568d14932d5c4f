package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// saveJSON writes v into a folder, under the name that sugarme's models use:
// prefix-name if there is a prefix.
func saveJSON(dir, name string, prefix []string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("tokenizer: save %s: %w", name, err)
	}
	return saveBytes(dir, name, prefix, data)
}

func saveBytes(dir, name string, prefix []string, data []byte) (err error) {
	if len(prefix) > 0 && prefix[0] != "" {
		name = prefix[0] + "-" + name
	}
	f, err := os.CreateTemp(dir, name+".*.tmp")
	if err != nil {
		return fmt.Errorf("tokenizer: save %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("tokenizer: save %s: %w", name, err)
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}
