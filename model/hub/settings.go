package hub

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// defaultEndpoint is the public hub.
const defaultEndpoint = "https://huggingface.co"

// settings are what the environment says, by the names and rules of
// huggingface_hub.
type settings struct {
	cache    string // folder of the models--org--name folders
	endpoint *url.URL
	token    string // "" sends none
	source   string // where the token is from, for messages
	offline  bool
}

// readSettings reads the environment.
func readSettings() (settings, error) {
	var s settings
	home := folder("HF_HOME")
	if home == "" {
		base := folder("XDG_CACHE_HOME")
		if base == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return s, fmt.Errorf("place of the Hugging Face cache: %w; set HF_HOME", err)
			}
			base = filepath.Join(user, ".cache")
		}
		home = filepath.Join(base, "huggingface")
	}
	s.cache = cmp.Or(folder("HF_HUB_CACHE"), folder("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub"))
	raw := cmp.Or(os.Getenv("HF_ENDPOINT"), defaultEndpoint)
	var err error
	s.endpoint, err = url.Parse(strings.TrimRight(raw, "/"))
	if err != nil || s.endpoint.Host == "" || (s.endpoint.Scheme != "http" && s.endpoint.Scheme != "https") {
		if err == nil {
			raw = s.endpoint.Redacted()
		}
		return s, fmt.Errorf("HF_ENDPOINT: got %q, want an address such as %s", raw, defaultEndpoint)
	}
	if s.token, s.source, err = readToken(home); err != nil {
		return s, err
	}
	offline := cmp.Or(os.Getenv("HF_HUB_OFFLINE"), os.Getenv("TRANSFORMERS_OFFLINE"))
	s.offline = slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(offline))
	return s, nil
}

// folder is a variable that names a folder, with ~ and variables in it expanded.
func folder(name string) string {
	return expandHome(os.ExpandEnv(os.Getenv(name)))
}

// expandHome replaces a leading ~, which a shell leaves alone after "=".
func expandHome(path string) string {
	if path != "~" && !strings.HasPrefix(path, "~/") {
		return path
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return path
	}
	return filepath.Join(home, strings.TrimPrefix(path, "~"))
}

// maxToken bounds the token file.
const maxToken = 1 << 16

// readToken returns the token and where it is from.
func readToken(home string) (token, source string, err error) {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if token := strings.TrimSpace(os.Getenv(name)); token != "" {
			return token, name, nil
		}
	}
	path := cmp.Or(folder("HF_TOKEN_PATH"), filepath.Join(home, "token"))
	raw, err := readBounded(path, maxToken)
	if os.IsNotExist(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("token file: %w", err)
	}
	return strings.TrimSpace(string(raw)), path, nil
}
