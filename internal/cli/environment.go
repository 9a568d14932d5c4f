package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// variables are the environment variables that stand for flags which are not given. A
// configuration file wins over them, as it wins over other defaults.
var variables = map[string]string{
	"model":   "GLIMPSE_MODEL",
	"device":  "GLIMPSE_DEVICE",
	"adapter": "GLIMPSE_ADAPTER",
	"threads": "GLIMPSE_THREADS",
}

// environment sets the defaults of the command's flags, and says in their help where they come
// from.
func environment(c *cobra.Command) (wrong error) {
	set := func(f *pflag.Flag) {
		variable, ok := variables[f.Name]
		if !ok || f.Name == "adapter" && f.Value.Type() != "stringArray" { // elsewhere a name within a run
			return
		}
		f.Usage += " [$" + variable + "]"
		text := os.Getenv(variable)
		if text == "" {
			return
		}
		var err error
		if list, ok := f.Value.(pflag.SliceValue); ok {
			err = list.Replace([]string{text})
		} else {
			err = f.Value.Set(text)
		}
		if err != nil && wrong == nil {
			wrong = fmt.Errorf("environment variable %s: got %.40q, want %s", variable, text, wanted(f))
		}
		f.DefValue = f.Value.String()
	}
	c.LocalNonPersistentFlags().VisitAll(set)
	c.PersistentFlags().VisitAll(set)
	return wrong
}
