"""Settings of the agents, one class a family, under OGBench's names. Plain data: nothing here imports JAX."""

import math
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from cta.errors import CtaError

Sizes = tuple[int, ...]
LARGEST = 2**31 - 1
"""Whole numbers end here: steps and rows are counted in 32 bits."""
WIDEST = 2**20
"""Layers end here, far above what fits on a device."""
COUNTS = (
    "batch_size", "dim", "ensemble", "value_ensemble", "features", "rank", "latent_dim", "subgoal_steps", "high_hold",
)  # fmt: skip
"""Whole numbers that begin at 1."""
BOUNDS = ("awr_clip",)
"""Numbers that may be infinite: no bound."""


def check_numbers(config: Any, where: str) -> None:
    """Complain about numbers no setting can have, at any depth: not finite, too large, or a size below 1."""
    for entry in fields(config):
        value, flag = getattr(config, entry.name), f"{where}.{entry.name.replace('_', '-')}"
        if is_dataclass(value):
            check_numbers(value, flag)
        elif isinstance(value, float) and not math.isfinite(value) and not (entry.name in BOUNDS and value == math.inf):
            raise CtaError(f"{flag} must be a finite number, not {value}")
        elif isinstance(value, tuple) and any(type(size) is int and not 1 <= size <= WIDEST for size in value):
            raise CtaError(f"{flag} must be sizes from 1 to {WIDEST}, not {_short(value)}")
        elif type(value) is int and entry.name in COUNTS and value < 1:
            raise CtaError(f"{flag} must be at least 1, not {_short(value)}")
        elif type(value) is int and not abs(value) <= LARGEST:
            raise CtaError(f"{flag} must be at most {LARGEST}, not {_short(value)}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


@dataclass(frozen=True)
class AgentConfig:
    """Settings every agent has: optimisation and goal sampling, under OGBench's names."""

    lr: float = 3e-4
    """Adam's learning rate."""
    batch_size: int = 1024
    """Transitions per step."""
    discount: float = 0.99
    """γ, of the values and of geometric goal sampling."""
    tau: float = 0.005
    """Rate of the EMA targets."""
    layer_norm: bool = True
    """Layer norm in values, encoders and bilinear networks (plain actors never have it, see `actor_layer_norm`)."""
    value_p_curgoal: float = 0.2
    """Probability that a value goal is the current row."""
    value_p_trajgoal: float = 0.5
    """Probability that a value goal is a later row of the trajectory."""
    value_p_randomgoal: float = 0.3
    """Probability that a value goal is any row."""
    value_geom_sample: bool = True
    """Later rows at geometric (else uniform) distance for value goals."""
    actor_p_curgoal: float = 0.0
    """Probability that an actor goal is the current row (flat agents)."""
    actor_p_trajgoal: float = 1.0
    """Probability that an actor goal is a later row of the trajectory (flat agents)."""
    actor_p_randomgoal: float = 0.0
    """Probability that an actor goal is any row."""
    actor_geom_sample: bool = False
    """Later rows at geometric (else uniform) distance for actor goals."""
    p_aug: float = 0.0
    """Probability that a batch of images is randomly cropped (vectors never are)."""

    def check(self) -> None:
        """Complain in one line about values that make no sense."""
        check_numbers(self, "--agent")
        if not 0 < self.discount < 1:
            raise CtaError(f"--agent.discount must lie in (0, 1), not {self.discount}")
        if not 0 < self.tau <= 1:
            raise CtaError(f"--agent.tau must lie in (0, 1], not {self.tau}")
        if not self.lr > 0:
            raise CtaError(f"--agent.lr must be positive, not {self.lr}")
        for kind in ("value", "actor"):
            mix = [getattr(self, f"{kind}_p_{goal}goal") for goal in ("cur", "traj", "random")]
            if min(mix) < 0 or abs(sum(mix) - 1) > 1e-6:
                raise CtaError(f"--agent.{kind}-p-curgoal, -trajgoal, -randomgoal must add up to 1, not {sum(mix):g}")


@dataclass(frozen=True)
class DualConfig:
    """The dual representation learner: Ṽ(s,g) = φ(s)ᵀψ(g)/√d and its critic."""

    hidden: Sizes = (512, 512, 512)
    """Hidden sizes of φ, ψ and the critic."""
    dim: int = 256
    """d, the dimension of φ and ψ."""
    expectile: float = 0.7
    """ι."""
    ensemble: int = 2
    """Members of φ, ψ and the critic."""
    scale: Literal["sqrt_d", "none"] = "sqrt_d"
    """Divide the inner product by √d, or not."""
    value_target: Literal["online", "ema"] = "online"
    """Bootstrap the critic from the online φ, ψ or from EMA copies."""
    pretrain_steps: int = 0
    """0: learn jointly with the agent; n: learn alone for n steps, then freeze and train the agent."""


@dataclass(frozen=True)
class EtaConfig:
    """The projection η of goal representations or analogies."""

    hidden: Sizes = (256, 256)
    """Hidden sizes."""
    dim: int = 32
    """e, the output dimension."""
    use: bool = True
    """False: the representation or analogy itself stands for the goal (for raw goals: the goal itself)."""
    normalise: bool = True
    """Scale the output to length √e."""
    ema: bool = False
    """Feed the target value from an EMA copy of η instead of the online one."""


@dataclass(frozen=True)
class TrunkConfig:
    """The bilinear networks."""

    hidden: Sizes = (128, 128)
    """Hidden sizes of the displacement and anchor modules."""
    features: int = 128
    """p, the number of bilinear features."""
    rank: int = 8
    """b, the rank of each bilinear feature."""
    backbone: Sizes = (128, 128)
    """Sizes of the MLP after the bilinear features."""
    form: Literal["backbone", "head", "pure"] = "backbone"
    """backbone: MLP and linear head on the features; head: linear head only; pure: the features are the output."""
    activate_final: bool = True
    """GELU and layer norm on the modules' last layer too."""


@dataclass(frozen=True)
class GcbConfig:
    """The goal-conditioned bisimulation analogy: a pair encoder F(s,g) and a state encoder Ψ that follows it."""

    hidden: Sizes = (512, 512, 512)
    """Hidden sizes of both encoders."""
    dim: int = 256
    """Dimension of both encodings."""
    reward_distance: Literal["huber", "abs"] = "huber"
    """Distance of two rewards: Huber (0 or ½ for rewards −1, 0) or absolute difference."""
    use: Literal["psi", "pair"] = "psi"
    """The analogy of (s,g): Ψ(g)−Ψ(s), or F(s,g) itself (then there is no Ψ)."""


@dataclass(frozen=True)
class ActorConfig(AgentConfig):
    """Agents with a policy network; alone it is all that behavioural cloning (GCBC) needs."""

    hidden: Sizes = (512, 512, 512)
    """Hidden sizes of values, critics and policies in MLP form."""
    actor_layer_norm: bool = False
    """Layer norm in MLP policies."""
    actor_std: float = 1.0
    """σ of the policies."""


@dataclass(frozen=True)
class Extraction:
    """How a flat policy is extracted from a value."""

    alpha: float = 1.0
    """AWR: temperature of the advantage weights; DDPG+BC: weight of behavioural cloning."""
    actor_loss: Literal["awr", "ddpgbc"] = "ddpgbc"
    """Advantage-weighted regression, or ascent of Q at the policy's own action plus behavioural cloning."""
    awr_clip: float = 100.0
    """Upper bound of advantage weights (inf: none)."""


@dataclass(frozen=True)
class ConditionedConfig(ActorConfig):
    """Agents that leave open what stands for a goal and which form their networks have."""

    conditioning: Literal["raw", "dual", "analogy", "gcb"] = "raw"
    """What stands for a goal: the goal, ψ(g), the dual analogy ψ(g)−ψ(s), or the bisimulation analogy."""
    networks: Literal["mlp", "bilinear"] = "mlp"
    """Form of value and policies: MLP on the concatenation, or bilinear in (condition, state)."""
    value_rep_grad_stop: bool = False
    """True: the value loss does not train η."""
    dual: DualConfig = field(default_factory=DualConfig)
    gcb: GcbConfig = field(default_factory=GcbConfig)
    eta: EtaConfig = field(default_factory=lambda: EtaConfig(use=False))
    trunk: TrunkConfig = field(default_factory=TrunkConfig)


@dataclass(frozen=True)
class ImplicitValueConfig(ConditionedConfig):
    """Agents with a value learned by implicit value learning."""

    expectile: float = 0.9
    """κ of the value loss."""
    value_ensemble: int = 2
    """Members of the value."""
    awr_clip: float = 100.0
    """Upper bound of advantage weights (inf: none)."""


@dataclass(frozen=True)
class GcivlConfig(ImplicitValueConfig):
    """Goal-conditioned implicit value learning with advantage-weighted regression."""

    alpha: float = 10.0
    """Temperature of the advantage weights."""


@dataclass(frozen=True)
class GciqlConfig(Extraction, ConditionedConfig):
    """Goal-conditioned implicit Q-learning."""

    expectile: float = 0.9
    """κ of the value loss."""


@dataclass(frozen=True)
class CrlConfig(Extraction, ConditionedConfig):
    """Contrastive RL. Its value goals are the positives of the contrast."""

    alpha: float = 3.0
    """AWR: temperature of the advantage weights; DDPG+BC: weight of behavioural cloning."""
    value_p_curgoal: float = 0.0
    """Probability that a contrastive goal is the current row."""
    value_p_trajgoal: float = 1.0
    """Probability that a contrastive goal is a later row of the trajectory."""
    value_p_randomgoal: float = 0.0
    """Probability that a contrastive goal is any row."""
    latent_dim: int = 512
    """Dimension of the contrastive features."""
    logit_floor: float | None = None
    """Lower bound of the logits the policy climbs (the CTA authors' code: log 1e-6 ≈ −13.8; None: no bound)."""


@dataclass(frozen=True)
class QrlConfig(Extraction, ActorConfig):
    """Quasimetric RL."""

    alpha: float = 0.3
    """AWR: temperature of the advantage weights; DDPG+BC: weight of behavioural cloning."""
    value_p_curgoal: float = 0.0
    """Probability that a value goal is the current row."""
    value_p_trajgoal: float = 0.0
    """Probability that a value goal is a later row of the trajectory."""
    value_p_randomgoal: float = 1.0
    """Probability that a value goal is any row."""
    quasimetric_type: Literal["iqe", "mrn"] = "iqe"
    """Interval quasimetric embedding, or metric residual network."""
    latent_dim: int = 512
    """Dimension of the latents, for IQE a multiple of 8."""
    eps: float = 0.05
    """ε, how much longer than one step a transition may be, squared."""

    def check(self) -> None:
        super().check()
        if self.latent_dim % 8:
            raise CtaError(f"--agent.latent-dim must be a multiple of 8, not {self.latent_dim}")


@dataclass(frozen=True)
class TwoLevelConfig(ImplicitValueConfig):
    """HIQL and everything grown from it: a value, a high policy that proposes subgoals, a low policy that acts."""

    batch_size: int = 256
    """Transitions per step."""
    conditioning: Literal["raw", "dual", "analogy", "gcb"] = "analogy"
    """What stands for a goal: the goal, ψ(g), the dual analogy ψ(g)−ψ(s), or the bisimulation analogy."""
    networks: Literal["mlp", "bilinear"] = "bilinear"
    """Form of value and policies: MLP on the concatenation, or bilinear in (condition, state)."""
    eta: EtaConfig = field(default_factory=EtaConfig)
    expectile: float = 0.7
    """κ of the value loss."""
    low_alpha: float = 3.0
    """β_ℓ, temperature of the low policy's advantage weights."""
    high_alpha: float = 3.0
    """β_h, temperature of the high policy's advantage weights."""
    subgoal_steps: int = 20
    """k, how far ahead a subgoal lies."""
    high_hold: int = 1
    """Environment steps a proposed subgoal is kept when acting."""
    bilinear_high_actor: bool = True
    """False: the high policy is a plain MLP on [s; g] (sizes: the trunk's backbone), as it is for raw goals."""
    policy_rep_grad_stop: bool = True
    """False: the low policy's loss trains η too (OGBench's `low_actor_rep_grad`)."""
    subgoal_repr_type: Literal["dual", "dual_state"] = "dual"
    """Input of η: the representation, or the state beside it."""
