package collective

import "testing"

// TestAnnounce: rank 0 says once how many ranks there are, also where a launcher gave it none.
func TestAnnounce(t *testing.T) {
	env := func(name, value string) func(string) string {
		return func(n string) string { return map[string]string{name: value}[n] }
	}
	for name, c := range map[string]struct {
		env        func(string) string
		rank, size int
		want       string
	}{
		"alone":               {env("", ""), 0, 1, ""},
		"four of mpirun":      {env("OMPI_COMM_WORLD_SIZE", "4"), 0, 4, "rank 0 of 4, which mpirun has started: one run"},
		"not the first":       {env("OMPI_COMM_WORLD_SIZE", "4"), 1, 4, ""},
		"two of srun":         {env("SLURM_STEP_NUM_TASKS", "2"), 0, 2, "rank 0 of 2, which srun has started: one run"},
		"one of mpirun":       {env("OMPI_COMM_WORLD_SIZE", "1"), 0, 1, "rank 0 of 1: mpirun has started no other process"},
		"a step of one task":  {env("SLURM_STEP_NUM_TASKS", "1"), 0, 1, "rank 0 of 1: srun has started no other process"},
		"a number that is no": {env("OMPI_COMM_WORLD_SIZE", "x"), 0, 1, ""},
	} {
		if got := announcement(c.env, c.rank, c.size); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
