use hookpoint::auto_hook;

use candle_nn::Linear;
use hookpoint::AutoHook;

#[derive(AutoHook, Clone)]
struct Done(Linear);

#[derive(AutoHook)]
struct Open(Done);

#[hookpoint::auto_hook]
impl Done {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}

#[auto_hook]
impl Open {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}
