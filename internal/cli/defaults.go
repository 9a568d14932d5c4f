package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"glimpse/internal/progress"
	"glimpse/internal/regularfile"
	"glimpse/internal/yamlconfig"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// configVariable names the file of defaults, in the place of the usual one.
const configVariable = "GLIMPSE_CONFIG"

// defaultsFile is the file of a user's defaults. Its keys are flags, with underscores as in
// all files.
type defaultsFile struct {
	Model      *string  `json:"model"`
	Device     *string  `json:"device"`
	Adapter    []string `json:"adapter"`
	CacheDType *string  `json:"cache_dtype"`
	Exact      *bool    `json:"exact"`
	Threads    *int     `json:"threads"`
	S3Endpoint *string  `json:"s3_endpoint"`
	S3Region   *string  `json:"s3_region"`
	Quiet      *bool    `json:"quiet"`
	Verbose    *bool    `json:"verbose"`
	NoProgress *bool    `json:"no_progress"`
	LogFormat  *string  `json:"log_format"`
}

// settings are the flags that have defaults, in the order in which they are shown. What s3
// flags have in the environment are the variables of Amazon's tools.
func (d *defaultsFile) settings() []setting {
	return []setting{
		{Name: "model", Variable: "GLIMPSE_MODEL", values: scalar(d.Model)},
		{Name: "device", Variable: "GLIMPSE_DEVICE", values: scalar(d.Device)},
		{Name: "adapter", Variable: "GLIMPSE_ADAPTER", values: d.Adapter},
		{Name: "cache-dtype", Variable: "GLIMPSE_CACHE_DTYPE", values: scalar(d.CacheDType)},
		{Name: "exact", Variable: "GLIMPSE_EXACT", values: scalar(d.Exact)},
		{Name: "threads", Variable: "GLIMPSE_THREADS", values: scalar(d.Threads)},
		{Name: "s3-endpoint", values: scalar(d.S3Endpoint)},
		{Name: "s3-region", values: scalar(d.S3Region)},
		{Name: "quiet", Variable: "GLIMPSE_QUIET", values: scalar(d.Quiet)},
		{Name: "verbose", Variable: "GLIMPSE_VERBOSE", values: scalar(d.Verbose)},
		{Name: "no-progress", Variable: "GLIMPSE_NO_PROGRESS", values: scalar(d.NoProgress)},
		{Name: "log-format", Variable: "GLIMPSE_LOG_FORMAT", values: scalar(d.LogFormat)},
	}
}

func scalar[T any](v *T) []string {
	if v == nil {
		return nil
	}
	return []string{fmt.Sprint(*v)}
}

// setting is a default that a file or the environment, which wins over the file, may give.
type setting struct {
	Name     string `json:"name"`               // of the flag
	Variable string `json:"variable,omitempty"` // of the environment
	Value    string `json:"value"`              // that is in force; "": the command's own
	From     string `json:"from"`               // the variable, the file, or "" for the command's own

	values []string
}

// defaults are the settings in force, by the names of their flags.
type defaults map[string]setting

func defaultsPath() (string, error) {
	if path := os.Getenv(configVariable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "glimpse", "config.yaml"), err
}

// readDefaults reads the file and the environment. A file that is not there says nothing,
// unless the environment names it.
func readDefaults() (defaults, error) {
	var file defaultsFile
	path, wrong := defaultsPath()
	if wrong != nil { // no home: there is no file
		wrong = nil
	} else if data, err := regularfile.Read(path, yamlconfig.MaxBytes); err == nil {
		wrong = yamlconfig.Decode(path, data, nil, &file)
	} else if !errors.Is(err, fs.ErrNotExist) {
		wrong = err
	} else if os.Getenv(configVariable) != "" {
		wrong = fmt.Errorf("environment variable %s: %w", configVariable, err)
	}
	if wrong != nil {
		file = defaultsFile{}
	}
	out := make(defaults)
	for _, s := range file.settings() {
		if s.values != nil {
			s.From = path
		}
		if text := os.Getenv(s.Variable); s.Variable != "" && text != "" {
			s.values, s.From = []string{text}, "$"+s.Variable
		}
		s.Value = strings.Join(s.values, ",")
		out[s.Name] = s
	}
	return out, wrong
}

// applyDefaults sets the defaults of the command's flags, and says in their help where they come from.
// A configuration of the command wins over them, as it wins over other defaults.
func (d defaults) applyDefaults(c *cobra.Command) (wrong error) {
	set := func(f *pflag.Flag) {
		s, ok := d[f.Name]
		if !ok || f.Name == "adapter" && f.Value.Type() != "stringArray" { // elsewhere a name within a run
			return
		}
		if s.Variable != "" {
			f.Usage += " [$" + s.Variable + "]"
		}
		if s.values == nil {
			return
		}
		var err error
		if list, ok := f.Value.(pflag.SliceValue); ok {
			err = list.Replace(s.values)
		} else {
			err = f.Value.Set(s.values[0])
		}
		if err != nil && wrong == nil {
			from := s.From + ": " + f.Name
			if variable, ok := strings.CutPrefix(s.From, "$"); ok {
				from = "environment variable " + variable
			}
			wrong = fmt.Errorf("%s: got %.40q, want %s", from, s.Value, wanted(f))
		}
		f.DefValue = f.Value.String()
	}
	c.LocalNonPersistentFlags().VisitAll(set)
	c.PersistentFlags().VisitAll(set)
	return wrong
}

// report says to those who want details which defaults are in force for the command.
func (d defaults) report(c *cobra.Command) {
	out, ok := c.ErrOrStderr().(*progress.Output)
	if !ok {
		return
	}
	for _, s := range new(defaultsFile).settings() {
		if s = d[s.Name]; s.From != "" && c.Flags().Lookup(s.Name) != nil && !c.Flags().Changed(s.Name) {
			out.Detail("--%s is %s, from %s", s.Name, s.Value, s.From)
		}
	}
}
